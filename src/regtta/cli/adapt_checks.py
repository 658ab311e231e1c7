"""Checks of ``regtta adapt`` before any work, and the log of its steps."""

import json
import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from regtta.cli.adapt_options import AdaptOptions, Protocol
from regtta.cli.data.labelled_batches import Data
from regtta.cli.data.open_data import extract_data_options
from regtta.cli.outputs import ModelWriter, check_output_files, check_suffix
from regtta.cli.predictions import PREDICTION_SUFFIXES, Tally
from regtta.cli.resume import check_resumable
from regtta.errors import BatchError, OptionError
from regtta.methods import Method
from regtta.persistence import atomic_write
from regtta.types import Step


def check_options(options: AdaptOptions, model_writer: ModelWriter) -> None:
    """Raise if options contradict each other or an output file cannot be written."""
    if not any((*options.outputs.values(), options.tensorboard)):
        raise OptionError(f"Nothing to write. Pass at least one of {', '.join(options.outputs)}, --tensorboard.")
    check_resumable(options)
    if options.safe and options.stats is None:
        raise OptionError("--safe needs source statistics. Pass --stats FILE, written by regtta collect.")
    check_suffix("--predictions", options.predictions, PREDICTION_SUFFIXES)
    check_suffix("--record", options.record, (".json",))
    model_writer.check_suffixes()
    data_options = extract_data_options(options)
    read = (options.weights, options.stats, data_options.path, data_options.labels_path)
    check_output_files(options.outputs, inputs=(*read, options.checkpoint), force=options.force)
    check_output_files({"--checkpoint": options.checkpoint}, inputs=read, force=options.force or options.resume)
    options.monitor_files.check(options.stats, force=options.force)


def check_passes(options: AdaptOptions, data: Data) -> None:
    """Raise if the protocol needs two passes and the data allows only one."""
    if options.protocol is Protocol.offline and not data.reiterable:
        raise OptionError(
            f"--protocol offline needs two passes over the data, but {options.data} is an iterator, exhausted "
            "after one. Pass a list, a DataLoader or a function that returns a new iterator."
        )


def check_labels(chosen: Method, data: Data) -> None:
    """Raise if the method learns from labels and none are given."""
    if chosen.takes_targets and not data.target_names:
        raise OptionError(f"{chosen.name} learns from labels. Name them with --target.")


def check_rows(options: AdaptOptions, tally: Tally) -> None:
    """Raise if the data has no rows, or if its second pass gave another number of rows than the first."""
    if tally.visited == 0:
        raise BatchError(f"{options.data} has no rows: there is nothing to adapt to.")
    if tally.visited != tally.predicted:
        raise BatchError(
            f"{options.data} gave {tally.visited} rows on its first pass and {tally.predicted} on its "
            "second. --protocol offline needs the same data in both passes."
        )


class DiagnosticsWriter:
    """Writer of steps as JSON lines to ``file``."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, step: Step) -> None:
        """Append a step."""
        self._file.write(json.dumps(diagnostics_to_dict(step), allow_nan=False) + "\n")


@contextmanager
def open_diagnostics(path: Path) -> Iterator[DiagnosticsWriter]:
    """Yield a writer to ``path``; the file appears once the block has succeeded."""
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8") as file:
        yield DiagnosticsWriter(file)


def diagnostics_to_dict(step: Step) -> dict[str, object]:
    """Return the diagnostics of ``step`` as JSON-compatible values; non-finite numbers become ``None``."""
    diagnostics = step.diagnostics
    return {
        "index": step.index,
        "samples": len(step.predictions),
        "excluded": len(step.excluded_rows),
        "loss": _finite(diagnostics.loss),
        "gradient_norm": _finite(diagnostics.gradient_norm),
        "displacement": _finite(diagnostics.displacement),
        "learned": diagnostics.verdict.learned,
        "reason": diagnostics.verdict.reason,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def format_command_line(options: AdaptOptions) -> str:
    """Return the command line that corresponds to ``options``.

    Example:
        >>> from pathlib import Path
        >>> format_command_line(AdaptOptions(model="mymodel:make", data="target.csv", record=Path("run.json")))
        'regtta adapt --model mymodel:make --data target.csv --record run.json'
    """
    values: dict[str, object] = {
        "--model": options.model,
        "--weights": options.weights,
        "--stats": options.stats,
        "--method": None if options.method == AdaptOptions.method else options.method,
        "--protocol": None if options.protocol is AdaptOptions.protocol else options.protocol.value,
        "--data": options.data,
        "--columns": ",".join(options.columns) or None,
        "--target": options.target,
        "--inputs": options.inputs,
        "--output": options.output,
        "--image-size": options.image_size,
        "--image-mean": ",".join(map(str, options.image_mean)) or None,
        "--image-std": ",".join(map(str, options.image_std)) or None,
        "--labels": options.labels,
        "--batch-size": options.batch_size,
        "--head": options.head,
        "--device": options.device,
        "--shuffle-seed": options.shuffle_seed,
        "--serve": None if options.serve is AdaptOptions.serve else options.serve.value,
        "--precision": options.precision,
        **options.outputs,
        "--checkpoint": options.checkpoint,
        "--checkpoint-every": None
        if options.checkpoint_every == AdaptOptions.checkpoint_every
        else options.checkpoint_every,
        "--tensorboard": options.tensorboard,
    }
    words = ["regtta", "adapt"]
    words += [word for option, value in values.items() if value is not None for word in (option, str(value))]
    words += [word for setting in options.settings for word in ("--set", setting)]
    flags = {
        "--safe": options.safe,
        "--fast": options.fast,
        "--resume": options.resume,
        "--allow-mismatch": options.allow_mismatch,
        "--force": options.force,
    }
    return shlex.join([*words, *(flag for flag, given in flags.items() if given)])
