"""Result of :func:`regtta.check`: findings, and the facts behind them."""

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Attributes:
        level: ``"ok"``, ``"warning"`` if results may be poor, or ``"error"`` if adaptation cannot work.
        topic: what was checked, such as ``"head"``.
        message: the result, and what to do about it unless it is ``"ok"``.

    Example:
        >>> print(Finding("warning", "batch size", "A batch of 4 is small."))
        warning  batch size     A batch of 4 is small.
    """

    level: Level
    topic: str
    message: str

    def __str__(self) -> str:
        return f"{self.level:<9}{self.topic:<15}{self.message}"


@dataclass(frozen=True)
class CheckResult:
    """Findings of :func:`regtta.check`.

    Attributes:
        model: class of the model.
        method: name of the method.
        findings: all findings, in the order of the checks.
        head: the head; ``None`` if it was not found.
        features: number of features, the width of the head's input; ``None`` if there is no head.
        moving: names of the parameters and buffers that adaptation changes.
        cost: duration of a step, in units of that of a prediction; ``None`` if it was not measured. An estimate.
        seconds: duration of a step on this batch; ``None`` if it was not measured. An estimate.

    Example:
        >>> result = CheckResult("Net", "ssa", (Finding("error", "head", "There is none. Add one."),))
        >>> result.ok, result.errors
        (False, ('There is none. Add one.',))
        >>> print(result)
        check of Net for ssa: 1 error, 0 warnings
        error    head           There is none. Add one.
    """

    model: str
    method: str
    findings: tuple[Finding, ...]
    head: str | None = None
    features: int | None = None
    moving: tuple[str, ...] = ()
    cost: float | None = None
    seconds: float | None = None

    @property
    def ok(self) -> bool:
        """True if there are no errors."""
        return not self.errors

    @property
    def errors(self) -> tuple[str, ...]:
        """Messages of all errors."""
        return tuple(finding.message for finding in self.findings if finding.level == "error")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages of all warnings."""
        return tuple(finding.message for finding in self.findings if finding.level == "warning")

    @property
    def headline(self) -> str:
        """Number of errors and warnings, as text."""
        return f"{_count(len(self.errors), 'error')}, {_count(len(self.warnings), 'warning')}"

    def to_dict(self) -> dict[str, object]:
        """Return JSON-compatible values."""
        return {"ok": self.ok, **asdict(self), "moving": list(self.moving)} | {
            "findings": [asdict(finding) for finding in self.findings]
        }

    def __str__(self) -> str:
        lines = [f"check of {self.model} for {self.method}: {self.headline}", *map(str, self.findings)]
        return "\n".join(lines)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
