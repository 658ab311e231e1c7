"""Lookup of the paper's numbers by method, data set, score and options, for comparison with our results."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from regtta.errors import OptionError
from regtta.options import did_you_mean
from regtta_bench.paper.records import Header, Option, PaperCell, PaperTable, Slip
from regtta_bench.paper.table_files import TABLE_FILES, paper_slips, paper_table

# Names of the experiments; each has one or more tables in the paper.
EXPERIMENT_NAMES: tuple[str, ...] = (
    *("subspace", "svhn", "california", "utkface", "biwi", "biwi-multitask"),
    *("ablation", "correlation", "k", "metric", "vit"),
    *("classification-svhn", "classification-cifar10c", "sensitivity-lr", "sensitivity-batch", "mae", "online"),
)


@dataclass(frozen=True)
class PaperNumber:
    """One number of the paper with its context.

    Attributes:
        cell: the number.
        name: name of the experiment.
        label: LaTeX label of its table.
        row: our name of its row.
        column: our name of its column.
        method: our name of the method; None if no method is involved.
        dataset: our name of the data set.
        score: name of the score.
        protocol: ``offline``, ``online`` or ``source``.
        options: options that the experiment varies.
        slips: contradictions in the paper that concern the number, to print as footnotes.
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


# Keys for lookup, in addition to the options.
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
# Numbers that agree in these and in their options are the same number, printed in several tables under any row name.
_MEANING = ("method", "column", "dataset", "score", "protocol")


def paper_numbers(name: str, **where: Option) -> tuple[PaperNumber, ...]:
    """Return all numbers of an experiment that match, in the paper's order.

    Args:
        name: name of the experiment, one of ``EXPERIMENT_NAMES``.
        where: values of ``method``, ``column``, ``row``, ``dataset``, ``score``, ``protocol`` or ``label``, and of
            options such as ``k`` or ``lr``. A value that does not occur in the experiment is an error; a combination
            that does not occur gives an empty tuple.

    Example:
        >>> [str(number.cell) for number in paper_numbers("k", method="ssa", dataset="svhn", k=400)]
        ['-']
    """
    if name not in EXPERIMENT_NAMES:
        raise OptionError(
            f"No table of the paper is named {name!r}; there are {list(EXPERIMENT_NAMES)}."
            + did_you_mean(name, EXPERIMENT_NAMES)
        )
    everything = _numbers(name)
    for key, value in where.items():
        _check(name, everything, key, value)
    return tuple(n for n in everything if all(_value(n, key) == value for key, value in where.items()))


def paper_number(name: str, **where: Option) -> PaperNumber:
    """Return the only number that matches; the arguments are those of :func:`paper_numbers`.

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
        raise OptionError(f"The paper has no number for {name} with {_listed(where)} together. Pass fewer of them.")
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
    tables = (paper_table(label) for label in TABLE_FILES)
    return tuple(number for table in tables if table.name == name for number in table_numbers(table))


def table_numbers(table: PaperTable) -> Iterator[PaperNumber]:
    """Yield every number of a table, row by row."""
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            yield PaperNumber(
                cell=cell,
                name=table.name,
                label=table.label,
                row=row.name,
                column=column.name,
                method=_first("method", row.header, column, table),
                dataset=_first("dataset", row.header, column, table) or "",
                score=_first("score", row.header, column, table) or "",
                protocol=table.protocol,
                options=MappingProxyType({**column.options, **row.header.options}),
                slips=tuple(slip for slip in paper_slips() if slip.concerns(table.label, row.name, column.name)),
            )


def _first(key: str, *places: Header | PaperTable) -> str | None:
    """Return the first value of ``key`` that is not None."""
    return next((value for header in places if (value := getattr(header, key)) is not None), None)


def _value(number: PaperNumber, key: str) -> Option | None:
    return _KEYS[key](number) if key in _KEYS else number.options.get(key)


def _same(one: PaperNumber, other: PaperNumber) -> bool:
    return one.options == other.options and all(_value(one, key) == _value(other, key) for key in _MEANING)


def _check(name: str, numbers: tuple[PaperNumber, ...], key: str, value: Option) -> None:
    """Raise if none of the numbers has the key or the value."""
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
    """Return the distinct values of ``key``, in the paper's order."""
    return list(dict.fromkeys(value for number in numbers if (value := _value(number, key)) is not None))


def _listed(where: Mapping[str, Option]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in where.items()) or "nothing more"


def _differences(found: tuple[PaperNumber, ...]) -> str:
    keys = [*_MEANING, *dict.fromkeys(option for number in found for option in number.options)]
    apart = [key for key in keys if len({_value(number, key) for number in found}) > 1]
    return " and ".join(f"{key} {_values(found, key)}" for key in apart)
