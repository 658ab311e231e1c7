"""Registry of methods by name, and creation of methods and of weighted sums such as ``"tent+0.5*ssa"``."""

import functools
import importlib.metadata
import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from regtta.errors import OptionError
from regtta.methods.actmad import ActMAD
from regtta.methods.auto import Auto
from regtta.methods.base import GradientMethod, Method
from regtta.methods.bn_adapt import BNAdapt
from regtta.methods.consistency import Consistency
from regtta.methods.cwsa import CWSA
from regtta.methods.dare_gram import DareGram
from regtta.methods.feature_alignment import FeatureAlignment
from regtta.methods.feature_restoration import FeatureRestoration
from regtta.methods.no_adaptation import NoAdaptation
from regtta.methods.oracle import Oracle
from regtta.methods.prototype import Prototype
from regtta.methods.psc import PSC
from regtta.methods.recalibrate_once import RecalibrateOnce
from regtta.methods.recentre import Recentre
from regtta.methods.recolour import Recolour
from regtta.methods.rsd import RSD
from regtta.methods.ssa import SSA
from regtta.methods.sums import Sum
from regtta.methods.tent import Tent
from regtta.methods.ttt import TTT
from regtta.methods.variance_minimization import VarianceMinimization
from regtta.options import check_choice, field_types, parse_options, replace, unknown_option_error

ENTRY_POINT_GROUP = "regtta.methods"

logger = logging.getLogger(__name__)


class MethodRegistry(Mapping[str, type[Method]]):
    """Read-only mapping from names to method classes: the built-in ones, followed by those of installed packages.

    A package registers methods as entry points of the group ``regtta.methods``. They are looked up when a name is not
    built in or when all names are listed, and imported when they are accessed. Built-in names cannot be overridden.
    """

    def __init__(self, built_in: Iterable[type[Method]]) -> None:
        self._built_in = {cls.name: cls for cls in built_in}

    def __getitem__(self, name: str) -> type[Method]:
        if name in self._built_in:
            return self._built_in[name]
        return _load(name, self._installed()[name])

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from self._installed()

    def __len__(self) -> int:
        return len(self._built_in) + len(self._installed())

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._installed()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"

    def _installed(self) -> dict[str, list[EntryPoint]]:
        """Return the entry points of installed packages by name, without importing them."""
        found: dict[str, list[EntryPoint]] = {}
        for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            if entry.name in self._built_in:
                _warn_of_override(entry.name, _package(entry))
            else:
                found.setdefault(entry.name, []).append(entry)
        return found


METHODS: Mapping[str, type[Method]] = MethodRegistry(
    (
        NoAdaptation,
        Auto,
        BNAdapt,
        FeatureAlignment,
        SSA,
        FeatureRestoration,
        Prototype,
        VarianceMinimization,
        RSD,
        TTT,
        Tent,
        CWSA,
        PSC,
        DareGram,
        ActMAD,
        Consistency,
        Recentre,
        Recolour,
        RecalibrateOnce,
        Oracle,
    )
)


def create_method(name: str, /, **options: object) -> Method:
    """Return the method ``name``, or a weighted sum of methods such as ``"tent+0.5*ssa"``.

    In a sum, ``lr``, ``optimizer``, ``batch_norm``, ``trainable`` and ``steps`` apply to the sum as a whole and default
    to the values of its first term. Any other option is passed to every term that has it.

    Args:
        name: key in ``METHODS``, or names with optional weights joined by ``+``.
        options: hyperparameters that override the defaults.

    Example:
        >>> create_method("ssa", k=25).k
        25
        >>> create_method("tent+0.5*ssa", k=25, lr=1e-4).weights
        (1.0, 0.5)
    """
    weights, classes = _parse_terms(name)
    if len(classes) == 1 and weights == (1.0,):
        return replace(classes[0](), options)
    known = _known_options(classes)
    for option in options:
        if option not in known:
            raise unknown_option_error(name, option, known)
    terms = tuple(replace(cls(), {n: v for n, v in options.items() if n in field_types(cls)}) for cls in classes)
    first = terms[0]
    if not isinstance(first, GradientMethod):
        raise OptionError(f"{first.name} has no loss to minimise, so it cannot be part of a sum.")
    shared = {option: getattr(first, option) for option in field_types(GradientMethod)}
    return Sum(terms=terms, weights=weights, **shared)  # type: ignore[arg-type]


def method_options(name: str, assignments: Iterable[str]) -> dict[str, object]:
    """Parse assignments such as ``"k=25"`` into options of the method or sum ``name``.

    Example:
        >>> method_options("tent+ssa", ["k=25", "lr=1e-4"])
        {'k': 25, 'lr': 0.0001}
    """
    return parse_options(name, _known_options(_parse_terms(name)[1]), assignments)


def _parse_terms(text: str) -> tuple[tuple[float, ...], list[type[Method]]]:
    weights, classes = [], []
    for part in text.split("+"):
        weight, star, name = part.rpartition("*")
        check_choice("the method", name.strip(), METHODS.keys())
        try:
            weights.append(float(weight) if star else 1.0)
        except ValueError as error:
            raise OptionError(f"Expected weight*method in {text!r}, found {part!r}.") from error
        classes.append(METHODS[name.strip()])
    return tuple(weights), classes


def _known_options(classes: Iterable[type[Method]]) -> dict[str, Any]:
    return {name: kind for cls in classes for name, kind in field_types(cls).items()}


def _load(name: str, entries: list[EntryPoint]) -> type[Method]:
    """Import the class of the only entry point ``name``, or raise an OptionError that names the package."""
    packages = " and ".join(map(_package, entries))
    if len(entries) > 1:
        raise OptionError(f"The method {name!r} is registered by {packages}. Uninstall all but one of these packages.")
    try:
        found = entries[0].load()
    except Exception as error:  # importing a package may raise anything
        raise OptionError(
            f"The method {name!r} of the package {packages} cannot be loaded from {entries[0].value} "
            f"({type(error).__name__}: {error}). Update or uninstall the package."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Method)) or inspect.isabstract(found):
        raise OptionError(
            f"Expected the method {name!r} of the package {packages} to be a concrete subclass of "
            f"regtta.methods.Method, found {entries[0].value}, which is {found!r}. Update or uninstall the package."
        )
    return found


def _package(entry: EntryPoint) -> str:
    return entry.value if entry.dist is None else entry.dist.name


@functools.cache
def _warn_of_override(name: str, package: str) -> None:
    logger.warning("The method %r of the package %s is ignored: regtta has a method of that name.", name, package)
