"""Experimental settings of the paper: each a data set with its shifts, model and training recipe.

A setting consists of parts. A part is one shift, from a source domain to a target domain, optionally scored on one of
several outputs. Columns of the paper's tables are parts; its means are taken over all parts of a setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from regtta_bench.corruptions import CORRUPTIONS
from regtta_bench.data import ANGLES, GENDERS, other_gender
from regtta_bench.training import BIWI, CALIFORNIA, SVHN, SVHN_SUBSET, UTKFACE, VIT, Recipe

Options = Mapping[str, object]


@dataclass(frozen=True)
class Part:
    """One shift.

    Attributes:
        target: name of the target domain.
        variant: name of the source domain; empty if the data set has only one.
        output: index of the output that is scored; None for all outputs.
    """

    target: str
    variant: str = ""
    output: int | None = None


@dataclass(frozen=True)
class Setting:
    """A data set with its shifts, model and training recipe.

    Attributes:
        name: identifier in results.
        title: human-readable title.
        data: name of the data loader.
        model: name of the architecture.
        recipe: training recipe.
        parts: shifts by column of the paper's tables.
        outputs: number of regression outputs.
        k: the paper's number of subspace dimensions.
        options: method options that differ from the defaults, applied to every method that has them.
        source_seeds: default number of source models.
    """

    name: str
    title: str
    data: str
    model: str
    recipe: Recipe
    parts: Mapping[str, Part] = field(hash=False)
    outputs: int = 1
    k: int = 100
    options: Options = field(default_factory=lambda: MappingProxyType({}), hash=False)
    source_seeds: int = 1

    @property
    def has_images(self) -> bool:
        """True if inputs are images."""
        return self.model != "mlp"

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the source domains."""
        return tuple(dict.fromkeys(part.variant for part in self.parts.values()))

    def column_parts(self, column: str) -> tuple[Part, ...]:
        """Return the parts of a column in the paper's tables: one, or all of them for a mean."""
        return (self.parts[column],) if column in self.parts else tuple(self.parts.values())


def _single(target: str) -> Mapping[str, Part]:
    return MappingProxyType({target: Part(target)})


_CORRUPTED = MappingProxyType({name: Part(name) for name in CORRUPTIONS})
_BIWI = MappingProxyType(
    {f"{g}_to_{other_gender(g)}_{a}": Part(other_gender(g), f"{g}-{a}") for g in GENDERS for a in sorted(ANGLES)}
)
_BIWI_MULTITASK = MappingProxyType(
    {
        f"{g}_to_{other_gender(g)}_{a}": Part(other_gender(g), g, ANGLES.index(a))
        for g in GENDERS
        for a in sorted(ANGLES)
    }
)

_ALL = (
    Setting("svhn", "SVHN to MNIST", "svhn", "resnet26", SVHN, _single("mnist"), source_seeds=3),
    Setting(
        "svhn-subset",
        "the first 10,000 digits of SVHN's test split to MNIST",
        "svhn-subset",
        "resnet26",
        SVHN_SUBSET,
        _single("mnist"),
        source_seeds=3,
    ),
    Setting("svhn-vit", "SVHN to MNIST with ViT-B/16", "svhn", "vit_b16", VIT, _single("mnist")),
    Setting(
        "california",
        "California Housing",
        "california",
        "mlp",
        CALIFORNIA,
        _single("near_bay"),
        k=10,
        options=MappingProxyType({"batch_norm": "source"}),
        source_seeds=5,
    ),
    Setting("utkface", "UTKFace, corrupted", "utkface", "resnet50", UTKFACE, _CORRUPTED),
    Setting("biwi", "Biwi Kinect across genders", "biwi", "resnet50", BIWI, _BIWI),
    Setting(
        "biwi-multitask",
        "Biwi Kinect across genders, three angles at once",
        "biwi",
        "resnet50",
        BIWI,
        _BIWI_MULTITASK,
        outputs=len(ANGLES),
    ),
    Setting("cifar10c", "CIFAR-10 to CIFAR-10-C", "cifar10", "resnet26", SVHN, _CORRUPTED),
)

SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in _ALL})
