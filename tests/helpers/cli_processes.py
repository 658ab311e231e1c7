"""Commands run by several processes, for tests: what each of them does with the group it is given."""

import os
from collections.abc import Callable
from typing import Any

from torch import distributed as dist

from helpers.cli_workspace import forget_module
from regtta.cli.torchrun import Team
from regtta.execution.distributed import make_communicator


def team_of(group: dist.ProcessGroup, folder: str) -> Team:
    """The team of the group, standing in the user's folder."""
    os.chdir(folder)
    forget_module()
    return Team(make_communicator(group), group, group.rank())


def outcome(run: Callable[..., Any], *arguments: Any) -> Any:
    """What ``run`` gives, or the error that it raises as text."""
    try:
        return run(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
