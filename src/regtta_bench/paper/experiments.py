"""Registry of the experiments by command-line name, with the tables that each of them fills."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from regtta.errors import OptionError
from regtta.methods import NoAdaptation
from regtta.options import did_you_mean
from regtta_bench.paper.latex_tables import LABELS, paper_table
from regtta_bench.paper.method_configs import READINGS, Arm, ArmMaker, arm_of
from regtta_bench.paper.numbers import NAMES
from regtta_bench.paper.protocol import Task
from regtta_bench.paper.settings import SETTINGS, Setting
from regtta_bench.paper.table_specs import Layout, layout_of

# Tables with one row per method, which can be extended by further rows.
_BY_METHOD = (
    *("tab:svhn", "tab:california", "tab:utkface", "tab:biwi-kinect", "atab:biwi-kinect_multi-task"),
    *("tab:utkface_mae", "tab:biwi-kinect_mae", "tab:svhn_online", "tab:utkface_online", "tab:biwi-kinect_online"),
    *("atab:vit_svhn_table", "atab:classification_accuracy_mnist", "atab:classification_accuracy_cifar10c"),
)
_SUMMARIES = MappingProxyType(
    {
        "subspace": "Feature subspace dimensions of regressors and classifiers.",
        "svhn": "All methods from SVHN to MNIST.",
        "california": "All methods for tabular data, and SSA by its number of dimensions in three configurations.",
        "utkface": "All methods on UTKFace under thirteen corruptions.",
        "biwi": "All methods on Biwi Kinect from one gender to the other.",
        "biwi-multitask": "All methods on Biwi Kinect with one model for three angles.",
        "ablation": "SSA without the subspace, and without its weighting.",
        "correlation": "Correlation of feature variance and influence on the output, by direction.",
        "k": "SSA by its number of dimensions, with and without the subspace.",
        "metric": "SSA by its divergence: KL, 2-Wasserstein, L1.",
        "vit": "SVHN to MNIST with ViT-B/16.",
        "classification-svhn": "Classifiers from SVHN to MNIST, with Tent.",
        "classification-cifar10c": "Classifiers from CIFAR-10 to CIFAR-10-C, with Tent.",
        "sensitivity-lr": "SSA by its learning rate.",
        "sensitivity-batch": "SSA by its batch size.",
        "mae": "UTKFace and Biwi Kinect by the mean absolute error.",
        "online": "All methods online.",
    }
)
_SUBSET = MappingProxyType({"svhn": "svhn-subset"})
_SUBSET_LABELS = (
    *("tab:svhn", "tab:svhn_online", "tab:subspace_dim", "atab:classification_subspace_dim"),
    *("tab:ablation_subspace_weight", "atab:correlation_table", "tab:ablation_n_dims", "atab:raw-feat_alignment_k"),
    *("atab:kl-vs-2wd_svhn", "atab:lr_variation_svhn", "atab:bs_variation_svhn"),
    "atab:classification_accuracy_mnist",
)
_CALIFORNIA_K = ("atab:california_ablation_k", "atab:california_raw_ablation_k")


@dataclass(frozen=True)
class Experiment:
    """A named experiment and its tables.

    Attributes:
        name: name on the command line.
        summary: one-line description.
        layouts: returns the tables to fill, given user-defined rows by name.
    """

    name: str
    summary: str
    layouts: Callable[[Mapping[str, ArmMaker]], tuple[Layout, ...]]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings that the experiment runs in."""
        cells = (cell for layout in self.layouts({}) for cell in layout.cells())
        return tuple(dict.fromkeys(cell.setting for cell in cells))


def experiment(name: str) -> Experiment:
    """Return the experiment called ``name``.

    Raises:
        OptionError: if there is no experiment of that name.

    Example:
        >>> [setting.name for setting in experiment("ablation").settings]
        ['svhn', 'utkface', 'biwi', 'california']
    """
    if name not in EXPERIMENTS:
        raise OptionError(
            f"There is no experiment {name!r}; choose one of {list(EXPERIMENTS)}." + did_you_mean(name, EXPERIMENTS)
        )
    return EXPERIMENTS[name]


def _of_paper(name: str, extra: Mapping[str, ArmMaker]) -> tuple[Layout, ...]:
    labels = [label for label in LABELS if paper_table(label).name == name]
    made = [layout_of(label, more=_more(label, extra)) for label in labels]
    if name == "california":
        made += [layout_of("tab:subspace_dim", settings={"california": "california"})]
    if name in ("california", "k"):
        # The configuration of the paper's text comes first; "k" already has it through the paper's own tables.
        readings = list(READINGS) if name == "california" else list(READINGS)[1:]
        made += [
            layout_of(label, options=READINGS[reading], reading=reading)
            for reading in readings
            for label in _CALIFORNIA_K
        ]
    return tuple(made)


def _subset(extra: Mapping[str, ArmMaker]) -> tuple[Layout, ...]:
    return tuple(
        layout_of(label, settings=_SUBSET, more=_more(label, extra, settings=("svhn-subset",)))
        for label in _SUBSET_LABELS
    )


def _more(
    label: str, extra: Mapping[str, ArmMaker], settings: tuple[str, ...] = tuple(SETTINGS)
) -> dict[str, dict[str, Arm]]:
    """Return rows that the paper does not have, as arms by setting: further configurations and user-defined methods."""
    if label not in _BY_METHOD:
        return {}
    task: Task = "classification" if paper_table(label).score == "accuracy" else "regression"
    every = [SETTINGS[name] for name in settings]
    rows: dict[str, dict[str, Arm]] = {}
    if task == "classification":
        rows["bn_adapt"] = {s.name: arm_of(s, "bn_adapt", task=task) for s in every}
    else:
        for reading, options in list(READINGS.items())[1:]:
            rows[f"ssa, {reading}"] = {s.name: arm_of(s, "ssa", options) for s in every if s.name == "california"}
        rows["feature_alignment"] = {s.name: arm_of(s, "feature_alignment") for s in every}
        rows["ttt: its source"] = {
            s.name: Arm(NoAdaptation(), "rotation") for s in every if _has_ttt(label) and s.images
        }
    rows["ssa, clipped at the rank"] = {s.name: arm_of(s, "ssa", {"clip": True}, task=task) for s in every}
    rows["oracle, all parameters"] = {s.name: arm_of(s, "oracle", {"trainable": "all"}, task=task) for s in every}
    added = {name: {s.name: arm for s in every if (arm := make(s, task)) is not None} for name, make in extra.items()}
    return rows | added


def _has_ttt(label: str) -> bool:
    return any(row.name == "ttt" for row in paper_table(label).rows)


def _named(name: str) -> Experiment:
    return Experiment(name, _SUMMARIES[name], lambda extra: _of_paper(name, extra))


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {name: _named(name) for name in NAMES}
    | {
        "svhn-subset": Experiment(
            "svhn-subset",
            f"Every table of the paper on SVHN, from {SETTINGS['svhn-subset'].title}.",
            _subset,
        )
    }
)
