"""Trained source models, kept by what they were trained by, so that no two tables train one twice."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import nn

from regtta.errors import MismatchError
from regtta.experiments.store import key_of
from regtta.experiments.training import Recipe
from regtta.files import read_safetensors, write_safetensors


@dataclass(frozen=True)
class SourceSpec:
    """Everything that a source model comes from.

    Attributes:
        data: name of the data set.
        model: name of the architecture.
        objective: what was minimised: ``"regression"``, ``"rotation"`` (TTT) or ``"dann"``.
        recipe: how it was trained.
        seed: of its weights, its order of samples and its split.
    """

    data: str
    model: str
    objective: str
    recipe: Recipe
    seed: int

    @property
    def key(self) -> str:
        """A mark of it all."""
        return key_of(asdict(self))


class SourceModels:
    """A folder of trained models.

    Args:
        folder: made where it is missing.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, spec: SourceSpec) -> Path:
        """Where the model of ``spec`` lies, or would."""
        return self.folder / f"{spec.data}-{spec.model}-{spec.objective}-{spec.seed}-{spec.key}.safetensors"

    def get(self, spec: SourceSpec, modules: dict[str, nn.Module], train: Callable[[], None]) -> bool:
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
