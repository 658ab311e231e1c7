"""Cache of trained source models, identified by their specification, so that no model is trained twice."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from torch import nn

from regtta.errors import MismatchError
from regtta.options import check_choice
from regtta.persistence import read_safetensors, write_safetensors
from regtta_bench.paper import Task
from regtta_bench.sweep.run_keys import with_revision
from regtta_bench.sweep.store import compute_key
from regtta_bench.training import Recipe

OBJECTIVES = ("regression", "rotation", "dann", "classification")
# Incremented when a code change alters the trained models: models of an older revision are trained again.
REVISIONS: Mapping[str, int] = MappingProxyType({"dann": 1})
SMALL_MODELS = ("mlp", "digits")  # models so small that a second thread costs more than it computes


class CachedSource(Protocol):
    """Specification that identifies a source model in the cache."""

    @property
    def key(self) -> str:
        """Hash of the specification."""

    @property
    def name(self) -> str:
        """Short readable name."""

    @property
    def model(self) -> str:
        """Name of the architecture."""


@dataclass(frozen=True)
class SourceSpec:
    """Complete specification of a source model and its training.

    Attributes:
        data: name of the data set.
        model: name of the architecture.
        objective: training objective, one of ``OBJECTIVES``.
        recipe: hyperparameters of the training.
        seed: seed of the initial weights, of the sample order and of the split.
        variant: source domain within the data set; empty if there is only one.
        against: target domain of DANN; empty for other objectives.
        start: ``"random"``, or the hash of the file with the initial weights.
        rows: number of training samples; 0 for all.
    """

    data: str
    model: str
    objective: str
    recipe: Recipe
    seed: int
    variant: str = ""
    against: str = ""
    start: str = "random"
    rows: int = 0

    def __post_init__(self) -> None:
        """Validate the fields."""
        check_choice("the objective", self.objective, OBJECTIVES)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values, with the revision of the objective if it was ever revised."""
        return with_revision(asdict(self) | {"recipe": self.recipe.to_dict()}, REVISIONS.get(self.objective, 0))

    @property
    def key(self) -> str:
        """Hash of the specification."""
        return compute_key(self.to_dict())

    @property
    def task(self) -> Task:
        """Task of the model."""
        return "classification" if self.objective == "classification" else "regression"

    @property
    def name(self) -> str:
        """Short readable name."""
        parts = (self.data, self.variant, self.model, self.objective, self.against, str(self.seed))
        return "-".join(part for part in parts if part)


class SourceModelCache:
    """Cache of trained models in a folder.

    Args:
        folder: folder of the cache; created if missing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, spec: CachedSource) -> Path:
        """Return the path of the model of ``spec``, which may not exist yet."""
        return self.folder / f"{spec.name}-{spec.key}.safetensors"

    def statistics_path(self, spec: CachedSource, suffix: str) -> Path:
        """Return the path of the model's feature statistics; ``suffix`` identifies the extra statistics."""
        return self.folder / f"{spec.name}-{spec.key}-statistics-{suffix}.safetensors"

    def checkpoint_path(self, spec: CachedSource) -> Path:
        """Return the path of the training checkpoint, which exists only while the training is incomplete."""
        return self.folder / f"{spec.name}-{spec.key}-partial.pt"

    def load_or_train(self, spec: CachedSource, modules: dict[str, nn.Module], train: Callable[[], None]) -> bool:
        """Load the trained weights of ``spec`` into ``modules``, or train and store them if they are not cached.

        Args:
            spec: specification of the model.
            modules: untrained modules by name: the model, and the modules trained with it.
            train: callback that trains the modules in place.

        Returns:
            True if the weights were found in the cache.
        """
        path = self.path(spec)
        if path.exists():
            _load_weights(modules, path)
            return True
        train()
        state = {
            f"{name}/{key}": value for name, module in modules.items() for key, value in module.state_dict().items()
        }
        write_safetensors(path, state, {"regtta.source": spec.key})
        return False


def _load_weights(modules: dict[str, nn.Module], path: Path) -> None:
    tensors, _ = read_safetensors(path)
    for name, module in modules.items():
        prefix = f"{name}/"
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise MismatchError(
                f"The weights in {path} do not fit the model of that name ({str(error).splitlines()[0]}). Remove the "
                "file to train again."
            ) from error
        module.eval()
