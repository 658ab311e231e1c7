"""Source: the model as it was trained."""

from dataclasses import dataclass
from typing import ClassVar

from regtta.methods.base import Batch, Method, MethodContext, Rule, Schedule


@dataclass(frozen=True, kw_only=True)
class Source(Method):
    """Predicts and never changes: the line every other method must beat."""

    name: ClassVar[str] = "source"
    paper: ClassVar[str] = "the model as trained"
    adapts: ClassVar[bool] = False

    @property
    def schedule(self) -> Schedule:
        """Nothing moves."""
        return Schedule()

    def start(self, context: MethodContext) -> Rule:  # noqa: ARG002 - every method is asked the same way
        """A rule that asks for nothing."""
        return _Stay()


class _Stay(Rule):
    def update(self, batch: Batch) -> None:
        """Nothing."""
