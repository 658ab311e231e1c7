"""Output files of the adapted model: ``--adapted-weights`` and ``--export``."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.commands.outputs import check_suffix
from regtta.errors import ModelError
from regtta.exporting import STATE_DICT, SUFFIXES, check_exportable, check_packages, save

_EXAMPLE_ROWS = 8


class ModelFiles:
    """Writer of the adapted model that detects unwritable formats early.

    Args:
        named: output paths by option; ``None`` if the option was not given.
    """

    def __init__(self, named: Mapping[str, Path | None]) -> None:
        self._paths = {option: path for option, path in named.items() if path is not None}
        self._traced = any(path.suffix != STATE_DICT for path in self._paths.values())
        self._example: Tensor | None = None

    def check_names(self) -> None:
        """Raise if a suffix names no format, or one whose packages are not installed."""
        for option, path in self._paths.items():
            # The suffix identifies weights when they are loaded.
            check_suffix(option, path, SUFFIXES if option == "--export" else (STATE_DICT,))
            check_packages(path.suffix)

    def check_model(self, model: nn.Module) -> None:
        """Raise if the state dict holds values other than tensors, which safetensors cannot store."""
        others = [name for name, value in model.state_dict().items() if not isinstance(value, Tensor)]
        for option, path in self._paths.items():
            if others and path.suffix == STATE_DICT:
                raise ModelError(
                    f"{option} stores tensors only, but {others[0]!r} in the state dict of the model is not a tensor."
                )

    def see(self, adapter: Adapter, inputs: Tensor) -> None:
        """Keep rows of the first batch as an example input, and raise if the model cannot be traced.

        Checking on the first batch avoids an adaptation whose result could not be exported.
        """
        if self._example is None:
            self._example = inputs[:_EXAMPLE_ROWS].clone()
            if self._traced:
                check_exportable(adapter.export(), self._example)

    def write(self, adapter: Adapter) -> None:
        """Write every file; permission to replace existing ones was checked at the start."""
        if self._paths:
            model, provenance = adapter.export(), adapter.provenance()
            for path in self._paths.values():
                save(path, model, provenance, self._example, overwrite=True)
