"""Where an adapted model comes from, in plain values that travel inside its file."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime

import torch

from regtta._version import __version__
from regtta.errors import OptionError


def utc_now() -> str:
    """The present second, in ISO 8601 and UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What made an adapted model; :meth:`regtta.Adapter.provenance` gives it.

    Attributes:
        source: fingerprint of the model before it was adapted.
        adapted: fingerprint of the model as it stands.
        method: the method and its options, as :func:`regtta.options.described` has them.
        head: name of the head, where the method looked at one.
        samples_behind_statistics: how many samples the source statistics are of, where there were any.
        batches: how many the adapter has seen.
        learned: how many of them it learned from.
        begun: when the stream began, in ISO 8601 and UTC.
        exported: when this was written down.
        regtta: the version that adapted.
        torch: the version of torch.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        >>> adapter = regtta.Adapter(model, regtta.BNAdapt(), head="2")
        >>> steps = list(adapter.run([torch.randn(4, 3), torch.randn(1, 3)]))
        >>> found = adapter.provenance()
        >>> found.method["type"], found.batches, found.learned, found.source == regtta.fingerprint(model)
        ('BNAdapt', 2, 1, True)
        >>> Provenance.from_plain(found.plain()) == found
        True
    """

    source: str
    adapted: str
    method: Mapping[str, object]
    head: str | None
    samples_behind_statistics: int | None
    batches: int
    learned: int
    begun: str
    exported: str = field(default_factory=utc_now)
    regtta: str = __version__
    torch: str = field(default_factory=lambda: str(torch.__version__))

    def plain(self) -> dict[str, object]:
        """As JSON has it."""
        return {name: _finite(value) for name, value in asdict(self).items()}

    def text(self) -> str:
        """As the JSON that files carry."""
        return json.dumps(self.plain(), allow_nan=False)

    @classmethod
    def from_plain(cls, plain: object) -> "Provenance":
        """Read what :meth:`plain` gave; a key too many, one too few or a wrong value is an error."""
        if not isinstance(plain, Mapping):
            raise OptionError(f"Expected a provenance, found {type(plain).__name__}.")
        known = {item.name for item in fields(cls)}
        unknown, missing = sorted(map(str, plain.keys() - known)), sorted(known - plain.keys())
        if unknown:
            raise OptionError(
                f"The provenance has keys that regtta {__version__} does not know: {unknown}. Upgrade regtta if it "
                f"was written by a newer one (it says {str(plain.get('regtta'))[:40]!r})."
            )
        if missing:
            raise OptionError(f"The provenance lacks {missing}.")
        for name, value in plain.items():
            _check(name, value)
        return cls(**plain)

    @classmethod
    def from_text(cls, text: str | bytes) -> "Provenance":
        """Read what :meth:`text` gave."""
        try:
            return cls.from_plain(json.loads(text, parse_constant=_refuse_constant))
        except (ValueError, RecursionError) as error:
            raise OptionError("The provenance is not JSON.") from error


_COUNTS = ("samples_behind_statistics", "batches", "learned")
_DATES = ("begun", "exported")
_MAY_BE_NONE = ("head", "samples_behind_statistics")


def _check(name: str, value: object) -> None:
    if value is None and name in _MAY_BE_NONE:
        return
    if name in _COUNTS:
        # bool is an int to Python, and no count.
        fits, wanted = type(value) is int and value >= 0, "a count"
    elif name in _DATES:
        fits, wanted = _is_date(value), "a date in ISO 8601"
    elif name == "method":
        fits, wanted = isinstance(value, Mapping), "the options of a method"
    else:
        fits, wanted = isinstance(value, str), "a text"
    if not fits:
        raise OptionError(f"Expected {name!r} in the provenance to be {wanted}, found {str(value)[:40]!r}.")


def _is_date(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _finite(value: object) -> object:
    """``value`` with infinities and NaNs as texts, which JSON has no other form for."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
