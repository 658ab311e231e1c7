"""The paper's numbers by what they mean, for printing beside our own."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from regtta.errors import OptionError
from regtta.experiments.paper.reading import FILES, paper_slips, paper_table
from regtta.experiments.paper.records import Option, PaperCell, PaperTable, Place, Slip
from regtta.options import did_you_mean

# What experiments are called; each has one table of the paper or more.
NAMES: tuple[str, ...] = (
    *("subspace", "svhn", "california", "utkface", "biwi", "biwi-multitask"),
    *("ablation", "correlation", "k", "metric", "vit"),
    *("classification-svhn", "classification-cifar10c", "sensitivity-lr", "sensitivity-batch", "mae", "online"),
)


@dataclass(frozen=True)
class PaperNumber:
    """One number of the paper and all that is said of it.

    Attributes:
        cell: the number.
        name: of the experiment.
        label: of the table it is from.
        row: our name of its row.
        column: our name of its column.
        method: by our name; None where no method is involved.
        dataset: by our name.
        score: what is measured.
        protocol: ``offline``, ``online`` or ``source``.
        options: what was varied.
        slips: the paper's contradictions that concern it, to print as footnotes.
    """

    cell: PaperCell
    name: str
    label: str
    row: str
    column: str
    method: str | None
    dataset: str
    score: str
    protocol: str
    options: Mapping[str, Option] = field(hash=False)
    slips: tuple[Slip, ...]


# What a number can be looked up by, beside its options.
_KEYS: Mapping[str, Callable[[PaperNumber], str | None]] = MappingProxyType(
    {
        "method": lambda number: number.method,
        "column": lambda number: number.column,
        "row": lambda number: number.row,
        "dataset": lambda number: number.dataset,
        "score": lambda number: number.score,
        "protocol": lambda number: number.protocol,
        "label": lambda number: number.label,
    }
)
# Two numbers that agree in these are one, printed twice; the row's name is only how a table calls it.
_MEANING = ("method", "column", "dataset", "score", "protocol")


def paper_numbers(name: str, **where: Option) -> tuple[PaperNumber, ...]:
    """Every number of an experiment that fits, in the paper's order.

    Args:
        name: of the experiment, one of ``NAMES``.
        where: ``method``, ``column``, ``row``, ``dataset``, ``score``, ``protocol`` or ``label``, and options such as
            ``k`` or ``lr``. A value that none of the experiment's numbers has is an error; several values that no
            number has together give an empty tuple.

    Example:
        >>> [str(number.cell) for number in paper_numbers("k", method="ssa", dataset="svhn", k=400)]
        ['-']
    """
    if name not in NAMES:
        raise OptionError(
            f"No table of the paper is named {name!r}; there are {list(NAMES)}." + did_you_mean(name, NAMES)
        )
    everything = _numbers(name)
    for key, value in where.items():
        _check(name, everything, key, value)
    return tuple(n for n in everything if all(_value(n, key) == value for key, value in where.items()))


def paper_number(name: str, **where: Option) -> PaperNumber:
    """The one number that fits; takes what :func:`paper_numbers` takes.

    A number that several tables of the experiment repeat is taken from the first of them.

    Example:
        >>> found = paper_number("svhn", method="ssa", column="R2")
        >>> found.cell.mean, found.cell.sd, found.label
        (0.511, 0.03, 'tab:svhn')
        >>> paper_number("subspace", method="source", dataset="utkface").slips[0].name
        'utkface-source-mean'
    """
    found = paper_numbers(name, **where)
    if not found:
        raise OptionError(f"The paper has no number for {name} with {_listed(where)} together: give fewer of them.")
    first = found[0]
    for other in found[1:]:
        if _same(first, other):
            continue
        raise OptionError(
            f"Expected {name} with {_listed(where)} to name one number of the paper, found {len(found)}. "
            + f"They differ in {_differences(found)}."
        )
    return first


@cache
def _numbers(name: str) -> tuple[PaperNumber, ...]:
    tables = (paper_table(label) for label in FILES)
    return tuple(number for table in tables if table.name == name for number in numbers_of(table))


def numbers_of(table: PaperTable) -> Iterator[PaperNumber]:
    """Every number of a table, row by row."""
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            yield PaperNumber(
                cell=cell,
                name=table.name,
                label=table.label,
                row=row.name,
                column=column.name,
                method=_first("method", row.place, column, table),
                dataset=_first("dataset", row.place, column, table) or "",
                score=_first("score", row.place, column, table) or "",
                protocol=table.protocol,
                options=MappingProxyType({**column.options, **row.place.options}),
                slips=tuple(slip for slip in paper_slips() if slip.concerns(table.label, row.name, column.name)),
            )


def _first(key: str, *places: Place | PaperTable) -> str | None:
    """What the first of the places to speak says."""
    return next((said for place in places if (said := getattr(place, key)) is not None), None)


def _value(number: PaperNumber, key: str) -> Option | None:
    return _KEYS[key](number) if key in _KEYS else number.options.get(key)


def _same(one: PaperNumber, other: PaperNumber) -> bool:
    return one.options == other.options and all(_value(one, key) == _value(other, key) for key in _MEANING)


def _check(name: str, numbers: tuple[PaperNumber, ...], key: str, value: Option) -> None:
    """Raise for a key or a value that none of the numbers has."""
    options = dict.fromkeys(option for number in numbers for option in number.options)
    keys = [*_KEYS, *options]
    if key not in keys:
        raise OptionError(
            f"The paper's {name} cannot be looked up by {key!r}, only by {keys}." + did_you_mean(key, keys)
        )
    values = _values(numbers, key)
    if value not in values:
        raise OptionError(
            f"The paper's {name} has no {key} {value!r}; it has {values}." + did_you_mean(str(value), map(str, values))
        )


def _values(numbers: tuple[PaperNumber, ...], key: str) -> list[Option]:
    """Each value once, in the paper's order."""
    return list(dict.fromkeys(value for number in numbers if (value := _value(number, key)) is not None))


def _listed(where: Mapping[str, Option]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in where.items()) or "nothing more"


def _differences(found: tuple[PaperNumber, ...]) -> str:
    keys = [*_MEANING, *dict.fromkeys(option for number in found for option in number.options)]
    apart = [key for key in keys if len({_value(number, key) for number in found}) > 1]
    return " and ".join(f"{key} {_values(found, key)}" for key in apart)
