"""Trained source models, kept by what they were trained by, so that no two tables train one twice."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from torch import nn

from regtta.errors import MismatchError
from regtta.experiments.scoring import Task
from regtta.experiments.specifying import revised
from regtta.experiments.store import key_of
from regtta.experiments.training import Recipe
from regtta.files import read_safetensors, write_safetensors
from regtta.options import check_choice

OBJECTIVES = ("regression", "rotation", "dann", "classification")
OWN_SOURCE = ("rotation", "dann")  # trained for one method alone
# Increased when a change of the code changes what a training gives: models of an older revision are trained again.
REVISIONS: Mapping[str, int] = MappingProxyType({"dann": 1})
SMALL = ("mlp", "digits")  # models so small that a second thread costs more than it computes


class KeptSource(Protocol):
    """What a source model is found again by; told apart by its fields."""

    @property
    def key(self) -> str:
        """A mark of everything that the model comes from."""

    @property
    def name(self) -> str:
        """Short, for people."""

    @property
    def model(self) -> str:
        """Name of the architecture."""


@dataclass(frozen=True)
class SourceSpec:
    """Everything that a source model comes from.

    Attributes:
        data: name of the data set.
        model: name of the architecture.
        objective: what was minimised, one of ``OBJECTIVES``.
        recipe: how it was trained.
        seed: of its weights, its order of samples and its split.
        variant: which of the data set's source domains; empty where there is one.
        against: the target that DANN trains against; empty for any other.
        start: what its weights began as: ``"random"``, or the mark of the file they were read from.
        rows: how many samples it was trained on; 0 for all.
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
        """Refuse what cannot be trained."""
        check_choice("the objective", self.objective, OBJECTIVES)

    def plain(self) -> dict[str, object]:
        """As JSON has it, with the revision of the objective where there was more than one."""
        return revised(asdict(self) | {"recipe": self.recipe.plain()}, REVISIONS.get(self.objective, 0))

    @property
    def key(self) -> str:
        """A mark of it all."""
        return key_of(self.plain())

    @property
    def task(self) -> Task:
        """What the model predicts."""
        return "classification" if self.objective == "classification" else "regression"

    @property
    def name(self) -> str:
        """Short, for people."""
        parts = (self.data, self.variant, self.model, self.objective, self.against, str(self.seed))
        return "-".join(part for part in parts if part)


class SourceModels:
    """A folder of trained models.

    Args:
        folder: made where it is missing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, spec: KeptSource) -> Path:
        """Where the model of ``spec`` lies, or would."""
        return self.folder / f"{spec.name}-{spec.key}.safetensors"

    def statistics_path(self, spec: KeptSource, mark: str) -> Path:
        """Where the statistics of its features lie, or would; ``mark`` is of what was gathered with them."""
        return self.folder / f"{spec.name}-{spec.key}-statistics-{mark}.safetensors"

    def checkpoint_path(self, spec: KeptSource) -> Path:
        """Where its training stands, while it lasts."""
        return self.folder / f"{spec.name}-{spec.key}-partial.pt"

    def get(self, spec: KeptSource, modules: dict[str, nn.Module], train: Callable[[], None]) -> bool:
        """Fill ``modules`` with the trained weights of ``spec``, training them if no one has yet.

        Args:
            spec: what they are trained by.
            modules: untrained, by name: the model, and what is trained beside it.
            train: trains them in place.

        Returns:
            Whether they were found rather than trained.
        """
        path = self.path(spec)
        if path.exists():
            _fill(modules, path)
            return True
        train()
        state = {
            f"{name}/{key}": value for name, module in modules.items() for key, value in module.state_dict().items()
        }
        write_safetensors(path, state, {"regtta.source": spec.key})
        return False


def _fill(modules: dict[str, nn.Module], path: Path) -> None:
    tensors, _ = read_safetensors(path)
    for name, module in modules.items():
        prefix = f"{name}/"
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise MismatchError(
                f"{path} does not fit the model it is named for ({str(error).splitlines()[0]}). Remove it to train "
                "again."
            ) from error
        module.eval()
