"""No adaptation: the source model."""

from dataclasses import dataclass
from typing import ClassVar

from regtta.methods.base import Method, MethodContext, Schedule
from regtta.methods.rules import Batch, Rule


@dataclass(frozen=True, kw_only=True)
class NoAdaptation(Method):
    """Unadapted model: the baseline of all other methods."""

    serialized_name: ClassVar[str] = "Source"
    name: ClassVar[str] = "source"
    paper: ClassVar[str] = "the model as trained"
    adapts: ClassVar[bool] = False

    @property
    def schedule(self) -> Schedule:
        """Schedule that updates nothing."""
        return Schedule()

    def start(self, context: MethodContext) -> Rule:  # noqa: ARG002 - signature of the base class
        """Return a rule without updates."""
        return _NoUpdate()


class _NoUpdate(Rule):
    def update(self, batch: Batch) -> None:
        """Return no update."""
