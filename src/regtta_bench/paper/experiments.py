"""Registry of the experiments by command-line name, with the tables that each of them fills."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from regtta.errors import OptionError
from regtta.methods import NoAdaptation
from regtta.options import did_you_mean
from regtta_bench.paper.method_configs import READINGS, MethodConfig, MethodConfigFactory, make_method_config
from regtta_bench.paper.numbers import EXPERIMENT_NAMES
from regtta_bench.paper.protocol import Task
from regtta_bench.paper.settings import SETTINGS, Setting
from regtta_bench.paper.table_files import TABLE_LABELS, paper_table
from regtta_bench.paper.table_specs import TableSpec, make_table_spec

# Tables with one row per method, which can be extended by further rows.
_METHOD_TABLES = (
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
        table_specs: returns the tables to fill, given user-defined rows by name.
    """

    name: str
    summary: str
    table_specs: Callable[[Mapping[str, MethodConfigFactory]], tuple[TableSpec, ...]]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings that the experiment runs in."""
        cells = (cell for table_spec in self.table_specs({}) for cell in table_spec.cells())
        return tuple(dict.fromkeys(cell.setting for cell in cells))


def get_experiment(name: str) -> Experiment:
    """Return the experiment called ``name``.

    Raises:
        OptionError: if there is no experiment of that name.

    Example:
        >>> [setting.name for setting in get_experiment("ablation").settings]
        ['svhn', 'utkface', 'biwi', 'california']
    """
    if name not in EXPERIMENTS:
        raise OptionError(
            f"There is no experiment {name!r}; choose one of {list(EXPERIMENTS)}." + did_you_mean(name, EXPERIMENTS)
        )
    return EXPERIMENTS[name]


def _paper_table_specs(name: str, user_methods: Mapping[str, MethodConfigFactory]) -> tuple[TableSpec, ...]:
    labels = [label for label in TABLE_LABELS if paper_table(label).name == name]
    table_specs = [make_table_spec(label, extra_rows=_extra_rows(label, user_methods)) for label in labels]
    if name == "california":
        table_specs += [make_table_spec("tab:subspace_dim", settings={"california": "california"})]
    if name in ("california", "k"):
        # The configuration of the paper's text comes first; "k" already has it through the paper's own tables.
        readings = list(READINGS) if name == "california" else list(READINGS)[1:]
        table_specs += [
            make_table_spec(label, options=READINGS[reading], reading=reading)
            for reading in readings
            for label in _CALIFORNIA_K
        ]
    return tuple(table_specs)


def _subset_table_specs(user_methods: Mapping[str, MethodConfigFactory]) -> tuple[TableSpec, ...]:
    return tuple(
        make_table_spec(label, settings=_SUBSET, extra_rows=_extra_rows(label, user_methods, settings=("svhn-subset",)))
        for label in _SUBSET_LABELS
    )


def _extra_rows(
    label: str, user_methods: Mapping[str, MethodConfigFactory], settings: tuple[str, ...] = tuple(SETTINGS)
) -> dict[str, dict[str, MethodConfig]]:
    """Return the configurations by setting of additional rows: variants of the methods, and user-defined methods."""
    if label not in _METHOD_TABLES:
        return {}
    task: Task = "classification" if paper_table(label).score == "accuracy" else "regression"
    every = [SETTINGS[name] for name in settings]
    rows: dict[str, dict[str, MethodConfig]] = {}
    if task == "classification":
        rows["bn_adapt"] = {s.name: make_method_config(s, "bn_adapt", task=task) for s in every}
    else:
        for reading, options in list(READINGS.items())[1:]:
            rows[f"ssa, {reading}"] = {
                s.name: make_method_config(s, "ssa", options) for s in every if s.name == "california"
            }
        rows["feature_alignment"] = {s.name: make_method_config(s, "feature_alignment") for s in every}
        rows["ttt: its source"] = {
            s.name: MethodConfig(NoAdaptation(), "rotation") for s in every if _has_ttt(label) and s.has_images
        }
    rows["ssa, clipped at the rank"] = {s.name: make_method_config(s, "ssa", {"clip": True}, task=task) for s in every}
    rows["oracle, all parameters"] = {
        s.name: make_method_config(s, "oracle", {"trainable": "all"}, task=task) for s in every
    }
    added = {
        name: {s.name: method_config for s in every if (method_config := make(s, task)) is not None}
        for name, make in user_methods.items()
    }
    return rows | added


def _has_ttt(label: str) -> bool:
    return any(row.name == "ttt" for row in paper_table(label).rows)


def _paper_experiment(name: str) -> Experiment:
    return Experiment(name, _SUMMARIES[name], lambda user_methods: _paper_table_specs(name, user_methods))


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {name: _paper_experiment(name) for name in EXPERIMENT_NAMES}
    | {
        "svhn-subset": Experiment(
            "svhn-subset",
            f"Every table of the paper on SVHN, from {SETTINGS['svhn-subset'].title}.",
            _subset_table_specs,
        )
    }
)
