"""Several processes of one group on this machine, for tests of what they do together."""

import multiprocessing
import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

# Children are forked from a server that has loaded torch once: a new interpreter each would take seconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch", "torch.distributed", "regtta.adapter", "regtta.statistics.collection", "several"]
)


def in_processes(
    size: int, function: Callable[..., Any], folder: Path, *arguments: Any, timeout: float = 60
) -> list[Any]:
    """What ``function(group, *arguments)`` gives in each of ``size`` processes, by rank; raises what one raised."""
    folder.mkdir(exist_ok=True)
    results = [folder / f"result-{size}-{rank}" for rank in range(size)]
    meeting = folder / f"meeting-{size}-{function.__name__}"
    children = [
        _CONTEXT.Process(target=_child, args=(rank, size, str(meeting), str(result), function, arguments))
        for rank, result in enumerate(results)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(timeout)
    hung = [rank for rank, child in enumerate(children) if child.is_alive()]
    for child in children:
        child.kill()
        child.join()
    assert not hung, f"processes {hung} of {size} hang"
    return [_result(rank, path) for rank, path in enumerate(results)]


def _child(
    rank: int, size: int, meeting: str, result: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=40)
    )
    try:
        value = ("value", function(dist.group.WORLD, *arguments))
    except Exception as error:
        value = ("error", error, traceback.format_exc())
    Path(result).write_bytes(pickle.dumps(value))
    if value[0] == "value":
        dist.destroy_process_group()


def _result(rank: int, path: Path) -> Any:
    if not path.exists():
        return None  # died
    kind, value, *_trace = pickle.loads(path.read_bytes())
    if kind == "error":
        raise value
    return value
