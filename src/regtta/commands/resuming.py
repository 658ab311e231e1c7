"""``--checkpoint`` and ``--resume``: checkpoints from which an interrupted adaptation resumes."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from regtta.adapter import Adapter
from regtta.checkpointing import Checkpoints
from regtta.commands.histories import StepHistory
from regtta.commands.options.adapt import AdaptOptions
from regtta.commands.outputs import check_suffix
from regtta.commands.protocols import Protocol
from regtta.errors import MismatchError, OptionError
from regtta.steps import Step


def check_resumable(options: AdaptOptions) -> None:
    """Raise if the options contradict those about checkpoints."""
    if options.checkpoint is None:
        if options.resume or options.checkpoint_every != AdaptOptions.checkpoint_every:
            option = "--resume" if options.resume else "--checkpoint-every"
            raise OptionError(f"{option} requires --checkpoint. Pass --checkpoint FILE, or omit {option}.")
        return
    check_suffix("--checkpoint", options.checkpoint, (".safetensors",))
    if options.protocol is not Protocol.online:
        raise OptionError("--checkpoint works only with --protocol online: offline predicts after all data. Omit one.")
    if options.record is not None:
        raise OptionError(
            "--record needs an uninterrupted run from the first batch to the last. Omit it or --checkpoint."
        )
    watched = {"--monitor": options.monitor, "--prometheus": options.prometheus, "--tensorboard": options.tensorboard}
    for option, path in watched.items():
        if path is not None:
            raise OptionError(
                f"{option} appends to its output and cannot be rolled back to a checkpoint. Omit it or --checkpoint; "
                "in Python, regtta.Checkpoints(..., monitor=monitor) supports both."
            )


class ResumableStream:
    """Stream with checkpoints; on resuming, steps before the checkpoint are replayed from the file.

    Args:
        adapter: the adapter.
        path: path of the checkpoint.
        every: batches between two checkpoints.
        about: options that identify the stream.
        resume: resume from the checkpoint if it exists.
        force: start over and replace an existing checkpoint.
    """

    def __init__(
        self, adapter: Adapter, path: Path, *, every: int, about: Mapping[str, object], resume: bool, force: bool
    ) -> None:
        history = StepHistory(about)
        self._keeper = Checkpoints(adapter, path, every, companion=history, overwrite=force)
        if resume:
            self._keeper.resume()
        self._past = list(history.steps)
        self._visited = 0

    def adapt(self, inputs: Tensor, targets: Tensor | None = None) -> Step:
        """Return the recorded step of this batch, or adapt to it if the checkpoint does not cover it."""
        self._visited += 1
        if self._visited > len(self._past):
            return self._keeper.adapt(inputs, targets)
        step = self._past[self._visited - 1]
        if len(step.predictions) != len(inputs):
            raise MismatchError(
                f"Batch {step.index} has {len(inputs)} rows, but the checkpoint {self._keeper.path} holds "
                f"{len(step.predictions)} predictions of it. Pass the data that the stream was started with."
            )
        return step

    def finish(self) -> None:
        """Write a checkpoint at the end of the data, so that the stream can resume when there is more."""
        if self._visited < len(self._past):
            raise MismatchError(
                f"The data has {self._visited} batches, but the checkpoint {self._keeper.path} covers "
                f"{len(self._past)}. Pass the data that the stream was started with."
            )
        self._keeper.try_save()


def resumable(options: AdaptOptions, adapter: Adapter, batch_size: int) -> ResumableStream | None:
    """Return the stream that ``options`` describe, or ``None`` without a checkpoint."""
    if options.checkpoint is None:
        return None
    stats = options.stats
    # The adapter validates model, method and guards itself.
    about = {
        "--data": options.data,
        "--columns": ",".join(options.columns) or None,
        "--inputs": options.inputs,
        "--target": options.target,
        "--batch-size": options.batch_size or batch_size,
        "--shuffle-seed": options.shuffle_seed,
        "--stats": None if stats is None else hashlib.sha256(stats.read_bytes()).hexdigest(),
    }
    every, resume, force = options.checkpoint_every, options.resume, options.force
    return ResumableStream(adapter, options.checkpoint, every=every, about=about, resume=resume, force=force)
