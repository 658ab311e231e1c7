"""The adapted model's files: what ``--adapted-weights`` and ``--export`` name."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.commands.outputs import check_suffix
from regtta.errors import ModelError
from regtta.exporting import STATE_DICT, SUFFIXES, check_exportable, check_packages, save

_EXAMPLE_ROWS = 8


class ModelFiles:
    """Writes the adapted model, and says early where that will not be possible.

    Args:
        named: the files by the option that names each; ``None`` where it was not given.
    """

    def __init__(self, named: Mapping[str, Path | None]) -> None:
        self._paths = {option: path for option, path in named.items() if path is not None}
        self._traced = any(path.suffix != STATE_DICT for path in self._paths.values())
        self._example: Tensor | None = None

    def check_names(self) -> None:
        """Raise where an ending is of no format, or of one whose packages are missing."""
        for option, path in self._paths.items():
            # Weights are told from other files by their ending when they are loaded again.
            check_suffix(option, path, SUFFIXES if option == "--export" else (STATE_DICT,))
            check_packages(path.suffix)

    def check_model(self, model: nn.Module) -> None:
        """Raise where the model has more in its state than a file of weights can hold."""
        others = [name for name, value in model.state_dict().items() if not isinstance(value, Tensor)]
        for option, path in self._paths.items():
            if others and path.suffix == STATE_DICT:
                raise ModelError(f"{option} holds tensors alone, but {others[0]!r} in the model is none.")

    def see(self, adapter: Adapter, inputs: Tensor) -> None:
        """Keep the form of the first batch; raise after it, not after the last, where the model cannot be traced."""
        if self._example is None:
            self._example = inputs[:_EXAMPLE_ROWS].clone()
            if self._traced:
                check_exportable(adapter.export(), self._example)

    def write(self, adapter: Adapter) -> None:
        """Write every file; whether one may be replaced was asked at the start."""
        if self._paths:
            model, provenance = adapter.export(), adapter.provenance()
            for path in self._paths.values():
                save(path, model, provenance, self._example, overwrite=True)
