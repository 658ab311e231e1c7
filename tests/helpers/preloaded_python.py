"""Python processes forked from a server that has imported torch: a new interpreter would take seconds to do so.

A forked process runs a command as ``python`` would, with its own arguments, folder, environment and exit code. Tests of
the imports themselves need a new interpreter.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

import torch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("torch", "torch.distributed", "torch.distributed.launcher.api", "pandas"),
        "torch._dynamo",  # imported with the first optimizer, which takes as long as torch itself
        *("regtta.adapter", "regtta.statistics.collection", "regtta.cli.adapt", "regtta.cli.collect"),
    ]
)


def run_python(
    arguments: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    timeout: float = 100,
) -> CompletedProcess[str]:
    """Run ``python *arguments`` (``-m module``, ``-c code`` or a script) in a forked process, and wait for its end."""
    with tempfile.TemporaryDirectory() as temporary:
        outputs = [Path(temporary) / name for name in ("stdout", "stderr")]
        command = (list(arguments), folder or Path.cwd(), dict(environment))
        process = CONTEXT.Process(target=_run, args=(*command, [str(path) for path in outputs]))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise TimeoutExpired(list(arguments), timeout)
        printed, errors = (path.read_text(encoding="utf-8") if path.exists() else "" for path in outputs)
        return CompletedProcess(list(arguments), process.exitcode or 0, printed, errors)


def _run(arguments: list[str], folder: Path, environment: dict[str, str], outputs: list[str]) -> None:
    for descriptor, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    option, rest = arguments[0], arguments[1:]
    sys.argv = [*arguments] if option not in ("-m", "-c") else [option, *rest[1:]]
    sys.path.insert(0, str(Path(option).parent) if option.endswith(".py") else str(folder))
    if option == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(option, run_name="__main__")
