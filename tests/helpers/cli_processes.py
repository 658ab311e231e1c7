"""Helpers for tests that run a command in several processes."""

import os
from collections.abc import Callable
from typing import Any

from torch import distributed as dist

from helpers.cli_workspace import forget_module
from regtta.cli.torchrun import WorkerGroup
from regtta.execution.distributed import make_communicator


def make_worker_group(group: dist.ProcessGroup, folder: str) -> WorkerGroup:
    """Return the workers of the process group after changing to the user's folder."""
    os.chdir(folder)
    forget_module()
    return WorkerGroup(make_communicator(group), group, group.rank())


def result_or_error(run: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of ``run``, or the error that it raises as text."""
    try:
        return run(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
