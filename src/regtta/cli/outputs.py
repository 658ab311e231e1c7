"""Output files of commands: checked before work begins, written atomically, exported models included."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.cli.adapt_options import OUTPUT_FILE_OPTIONS, AdaptOptions
from regtta.cli.torchrun import WorkerGroup
from regtta.errors import ExistingFileError, FileError, ModelError, OptionError
from regtta.execution import sync_errors
from regtta.models import Inputs
from regtta.persistence import STATE_DICT, SUFFIXES, check_exportable, check_not_existing, check_packages, save_model


def check_output_files(outputs: Mapping[str, Path | None], *, inputs: Sequence[Path | None], force: bool) -> None:
    """Raise if an output cannot be written or would overwrite an input or an existing file.

    Args:
        outputs: paths by option; ``None`` if the option was not given.
        inputs: files that the command reads.
        force: allow existing files to be replaced.
    """
    given = {option: path for option, path in outputs.items() if path is not None}
    read = {path.resolve() for path in inputs if path is not None}
    written: dict[Path, str] = {}
    for option, path in given.items():
        if path.resolve() in read:
            raise OptionError(f"{option} {path} is also an input. Write to another path.")
        if path.resolve() in written:
            raise OptionError(f"{option} and {written[path.resolve()]} both name {path}. Use different paths.")
        if path.is_dir():
            raise OptionError(f"{option} {path} is a folder. Name a file.")
        check_not_existing(path, overwrite=force, remedy="--force")
        if not os.access(path.parent, os.W_OK):
            raise FileError(f"The folder {path.parent.resolve()} cannot be written to ({option} {path}).")
        written[path.resolve()] = option


def check_suffix(option: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Raise unless ``path`` is ``None`` or has one of ``suffixes``."""
    if path is not None and path.suffix not in suffixes:
        raise OptionError(f"Expected {option} to end in {' or '.join(suffixes)}, found {path}.")


def check_output_folder(path: Path, *, force: bool) -> None:
    """Raise if ``path`` is a file, or a folder that is not empty (unless ``force``)."""
    if path.exists() and not path.is_dir():
        raise OptionError(f"{path} is a file. Name a folder that is new or empty.")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise ExistingFileError(f"{path} is not empty. Choose another folder, or pass --force.")


OUTPUT_FIELDS = (*OUTPUT_FILE_OPTIONS, "tensorboard", "checkpoint")  # fields of AdaptOptions that name an output


@contextmanager
def redirect_outputs(options: AdaptOptions, workers: WorkerGroup) -> Iterator[AdaptOptions]:
    """Yield ``options`` unchanged in the first process, and with temporary output paths in the others.

    All processes run the same code, writing included; the files of the others are deleted. They copy a checkpoint to
    resume from before the first process can overwrite it.
    """
    with ExitStack() as stack:
        with sync_errors(workers.processes):
            redirected = options
            if not workers.is_first:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="regtta-"))
                redirected = _with_outputs_in(options, Path(folder))
        size = _checkpoint_size(redirected) if options.resume else "none"
        workers.processes.check_same("checkpoint to resume from", size)
        yield redirected


def _with_outputs_in(options: AdaptOptions, folder: Path) -> AdaptOptions:
    """Return ``options`` with every output path inside ``folder``, keeping the suffixes."""
    given: dict[str, Path] = {name: path for name in OUTPUT_FIELDS if (path := getattr(options, name)) is not None}
    redirected = {name: folder / f"{name}{path.suffix}" for name, path in given.items()}
    if options.resume and "checkpoint" in given and given["checkpoint"].is_file():
        shutil.copyfile(given["checkpoint"], redirected["checkpoint"])
    return replace(options, **redirected)  # type: ignore[arg-type]


def _checkpoint_size(options: AdaptOptions) -> str:
    path = options.checkpoint
    return str(path.stat().st_size) if path is not None and path.is_file() else "none"


_EXAMPLE_ROWS = 8


class ModelWriter:
    """Writer of the adapted model that detects write_error formats early.

    Args:
        paths: output paths by option; ``None`` if the option was not given.
    """

    def __init__(self, paths: Mapping[str, Path | None]) -> None:
        self._paths = {option: path for option, path in paths.items() if path is not None}
        self._traced = any(path.suffix != STATE_DICT for path in self._paths.values())
        self._example: Inputs | None = None

    def check_suffixes(self) -> None:
        """Raise if a suffix names no format, or one whose packages are not installed."""
        for option, path in self._paths.items():
            # The suffix identifies weights when they are loaded.
            check_suffix(option, path, SUFFIXES if option == "--export" else (STATE_DICT,))
            check_packages(path.suffix)

    def check_state_dict(self, model: nn.Module) -> None:
        """Raise if the state dict holds values other than tensors, which safetensors cannot store."""
        others = [name for name, value in model.state_dict().items() if not isinstance(value, Tensor)]
        for option, path in self._paths.items():
            if others and path.suffix == STATE_DICT:
                raise ModelError(
                    f"{option} stores tensors only, but {others[0]!r} in the state dict of the model is not a tensor."
                )

    def take_example(self, adapter: Adapter, inputs: Inputs) -> None:
        """Keep rows of the first batch as an example input, and raise if the model cannot be traced.

        Checking on the first batch avoids an adaptation whose result could not be exported.
        """
        if self._example is None:
            self._example = inputs[:_EXAMPLE_ROWS].clone()
            if self._traced:
                check_exportable(adapter.export(), self._example, output=adapter.output)

    def write(self, adapter: Adapter) -> None:
        """Write every file; permission to replace existing ones was checked at the start."""
        if self._paths:
            model, provenance = adapter.export(), adapter.provenance()
            for path in self._paths.values():
                save_model(path, model, provenance, self._example, output=adapter.output, overwrite=True)
