"""A stream whose batches are shared by several processes of torch.distributed."""

from dataclasses import replace

from regtta.engine.forward import Shard
from regtta.engine.stream import Stream, StreamStep
from regtta.execution import BatchSplitter
from regtta.types import Step


class ShardedStream(Stream):
    """Stream in which every process passes its own samples of each batch, all at the same time.

    Attributes:
        whole_batches: True if every process passes the same whole batch instead, and gets the whole result.
    """

    whole_batches = False

    def step(self, shard: Shard, *, frozen: bool = False) -> StreamStep:
        """Predict a batch with all processes, and learn from it unless a guard of any process rejects it."""
        splitter = BatchSplitter(self._processes, shard.inputs) if self.whole_batches else None
        inputs, targets = shard.inputs, shard.targets
        with self._processes.collective():
            if splitter is not None:
                inputs, targets = splitter.shard, None if targets is None else splitter.split(targets)
            own = Shard(inputs, targets, self._processes.shard_sizes(inputs))
            done = super().step(own, frozen=frozen)
            if splitter is None:
                return done
            step, rows = done.step, splitter.join_indices(done.step.excluded_rows)
            return replace(done, step=Step(step.index, splitter.join(step.predictions), step.diagnostics, rows))
