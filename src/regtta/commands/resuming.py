"""``--checkpoint``: where an adaptation stands, in a file, so that one that was killed can go on with ``--resume``."""

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
    """Raise where the options about checkpoints have no meaning together."""
    if options.checkpoint is None:
        if options.resume or options.checkpoint_every != AdaptOptions.checkpoint_every:
            option = "--resume" if options.resume else "--checkpoint-every"
            raise OptionError(f"{option} has no meaning without --checkpoint. Name a file with it, or leave it out.")
        return
    check_suffix("--checkpoint", options.checkpoint, (".safetensors",))
    if options.protocol is not Protocol.online:
        raise OptionError("--checkpoint is for --protocol online: offline predicts after all data. Leave one out.")
    if options.record is not None:
        raise OptionError("--record follows a run from its first batch to its last. Leave out it or --checkpoint.")
    watched = {"--monitor": options.monitor, "--prometheus": options.prometheus, "--tensorboard": options.tensorboard}
    for option, path in watched.items():
        if path is not None:
            raise OptionError(
                f"{option} writes as the stream goes and cannot be taken back to a checkpoint. Leave out one of them; "
                "in Python, regtta.Checkpoints(..., monitor=monitor) keeps both."
            )


class ResumableStream:
    """An adapter that goes on where a killed command stopped. The steps before that come out of the file.

    Args:
        adapter: that adapts.
        path: of the checkpoint.
        every: batches between two writes.
        about: what the stream is of.
        resume: go on from the file, where there is one.
        force: begin anew over a file that exists.
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
        """The step that the stream took on this batch before it was killed, or else one more."""
        self._visited += 1
        if self._visited > len(self._past):
            return self._keeper.adapt(inputs, targets)
        step = self._past[self._visited - 1]
        if len(step.predictions) != len(inputs):
            raise MismatchError(
                f"Batch {step.index} has {len(inputs)} rows, but the checkpoint {self._keeper.path} holds "
                f"{len(step.predictions)} predictions of it. Give the data that the stream was begun with."
            )
        return step

    def finish(self) -> None:
        """The data is over: keep where the stream stands, so that it can go on when there is more."""
        if self._visited < len(self._past):
            raise MismatchError(
                f"The data has {self._visited} batches, but the checkpoint {self._keeper.path} stands after "
                f"{len(self._past)}. Give the data that the stream was begun with."
            )
        self._keeper.try_save()


def resumable(options: AdaptOptions, adapter: Adapter, batch_size: int) -> ResumableStream | None:
    """The stream that ``options`` ask for; none without a checkpoint."""
    if options.checkpoint is None:
        return None
    stats = options.stats
    # Model, method and guards the adapter checks itself.
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
