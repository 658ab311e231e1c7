"""Provenance of an adapted model in plain values that are stored inside its file, and of the software that made it."""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime

import torch

from regtta._version import __version__
from regtta.errors import OptionError


def utc_now() -> str:
    """Return the current time in UTC, in ISO 8601 with a resolution of seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Provenance of an adapted model, as returned by :meth:`regtta.Adapter.provenance`.

    Attributes:
        source: fingerprint of the model before adaptation.
        adapted: fingerprint of the adapted model.
        method: the method and its options, as returned by :func:`regtta.persistence.identity.to_dict`.
        head: name of the head, if the method uses one.
        samples_behind_statistics: number of samples in the source statistics, if there are any.
        batches: number of batches that the adapter has processed.
        learned: number of batches that it has learned from.
        begun: start time of the stream, in ISO 8601 and UTC.
        member: ``"source"`` if the source model was exported as the leading member of a mixture, else ``"adapted"``.
        exported: time of the export.
        regtta: version of regtta.
        torch: version of torch.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        >>> adapter = regtta.Adapter(model, regtta.BNAdapt(), head="2")
        >>> steps = list(adapter.run([torch.randn(4, 3), torch.randn(1, 3)]))
        >>> found = adapter.provenance()
        >>> found.method["type"], found.batches, found.learned, found.source == regtta.fingerprint(model)
        ('BNAdapt', 2, 1, True)
        >>> Provenance.from_dict(found.to_dict()) == found
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
    member: str = "adapted"
    exported: str = field(default_factory=utc_now)
    regtta: str = __version__
    torch: str = field(default_factory=lambda: str(torch.__version__))

    def to_dict(self) -> dict[str, object]:
        """Return the fields as values that JSON can represent."""
        return {name: _finite(value) for name, value in asdict(self).items()}

    def to_json(self) -> str:
        """Return the fields as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, plain: object) -> "Provenance":
        """Restore a provenance from :meth:`to_dict`; raise an OptionError for unknown, missing or invalid fields."""
        if not isinstance(plain, Mapping):
            raise OptionError(f"Expected the provenance to be a JSON object, found {type(plain).__name__}.")
        known = {item.name for item in fields(cls)}
        unknown, missing = sorted(map(str, plain.keys() - known)), sorted(known - _ADDED_LATER - plain.keys())
        if unknown:
            raise OptionError(
                f"The provenance has keys that regtta {__version__} does not know: {unknown}. Upgrade regtta if a "
                f"newer version wrote it (it states {str(plain.get('regtta'))[:40]!r})."
            )
        if missing:
            raise OptionError(f"The provenance lacks {missing}.")
        for name, value in plain.items():
            _check(name, value)
        return cls(**plain)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Provenance":
        """Restore a provenance from the JSON that :meth:`to_json` returns."""
        try:
            return cls.from_dict(json.loads(text, parse_constant=_reject_constant))
        except (ValueError, RecursionError) as error:
            raise OptionError("The provenance is not valid JSON.") from error


_COUNTS = ("samples_behind_statistics", "batches", "learned")
_DATES = ("begun", "exported")
_MAY_BE_NONE = ("head", "samples_behind_statistics")
_ADDED_LATER = {"member"}  # fields that files of version 0.1.0 do not have


def _check(name: str, value: object) -> None:
    if value is None and name in _MAY_BE_NONE:
        return
    if name in _COUNTS:
        # isinstance would accept bool.
        valid, expected = type(value) is int and value >= 0, "a count"
    elif name in _DATES:
        valid, expected = _is_date(value), "a date in ISO 8601"
    elif name == "member":
        valid, expected = value in ("adapted", "source"), '"adapted" or "source"'
    elif name == "method":
        valid, expected = isinstance(value, Mapping), "the options of a method"
    else:
        valid, expected = isinstance(value, str), "a string"
    if not valid:
        raise OptionError(f"Expected {name!r} in the provenance to be {expected}, found {str(value)[:40]!r}.")


def _is_date(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _finite(value: object) -> object:
    """Return ``value`` with infinities and NaNs as strings, since JSON has no numbers for them."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


def software_versions() -> dict[str, str]:
    """Return the versions of regtta, torch and Python.

    Example:
        >>> list(software_versions())
        ['regtta', 'torch', 'python']
    """
    return {"regtta": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def device_name(device: torch.device | str) -> str:
    """Return the type of ``device``, or the model name of a GPU.

    Example:
        >>> device_name("cpu")
        'cpu'
    """
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
