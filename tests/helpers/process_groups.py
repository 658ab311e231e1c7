"""Process groups of torch.distributed on this machine."""

import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from helpers.preloaded_python import CONTEXT


def run_in_processes(
    size: int, function: Callable[..., Any], folder: Path, *arguments: Any, timeout: float = 60
) -> list[Any]:
    """Return ``function(group, *arguments)`` of ``size`` processes by rank; raise the error of the first that fails."""
    folder.mkdir(exist_ok=True)
    results = [folder / f"result-{size}-{rank}" for rank in range(size)]
    store = folder / f"store-{size}-{function.__name__}"
    children = [
        CONTEXT.Process(target=_child, args=(rank, size, str(store), str(result), function, arguments))
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
    rank: int, size: int, store: str, result: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=40)
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
        return None  # the process died
    kind, value, *_trace = pickle.loads(path.read_bytes())
    if kind == "error":
        raise value
    return value
