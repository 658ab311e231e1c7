"""Learning in several processes of torch.distributed, each with some samples of every batch."""

from dataclasses import replace
from functools import partial

import torch

from regtta.engine.forward import Shard, run_on_rows
from regtta.engine.learner import Learner
from regtta.engine.stream import Stream, StreamStep
from regtta.execution import BatchSharding, BatchSplitter
from regtta.methods import Batch, Update
from regtta.models import Forward, describe_sample
from regtta.types import Step


class ShardedLearner(Learner):
    """Learner whose rule sees the samples of all processes."""

    def _learn(self, shard: Shard, repeated: bool) -> tuple[Forward, Update]:
        processes, counts = self._processes, shard.counts
        run = partial(run_on_rows, self._forward.default if shard.whole else self._forward.uncompiled)
        self.batch_norm.begin_adaptation(sum(counts), BatchSharding(processes, empty=len(shard.inputs) == 0))
        try:
            with torch.set_grad_enabled(bool(self.state.trainable)), self._training:
                local = run(shard.inputs)
                self._slots.restore_with_values()
                found = Forward(processes.gather(local.features, counts), processes.gather(local.outputs, counts))
                targets = None if shard.targets is None else processes.gather(shard.targets, counts)
                extra_pass = partial(self.batch_norm.extra_pass, run)
                gather = partial(processes.gather, counts=counts)
                rows = found.flat_features
                batch = Batch(shard.inputs, rows, found.outputs, targets, extra_pass, repeated, gather)
                return found, self.rule.update(batch)
        finally:
            self._slots.restore()
            self.batch_norm.end_adaptation()


class ShardedStream(Stream):
    """Stream in which every process passes its own samples of each batch, all at the same time.

    Attributes:
        whole_batches: True if every process passes the same whole batch instead, and gets the whole result.
    """

    whole_batches = False

    def step(self, shard: Shard, *, frozen: bool = False) -> StreamStep:
        """Predict a batch with all processes, and learn from it unless a guard of any process rejects it."""
        splitter = BatchSplitter(self._processes, len(shard.inputs)) if self.whole_batches else None
        inputs, targets = shard.inputs, shard.targets
        with self._processes.collective():
            if splitter is not None:
                inputs, targets = inputs[splitter.own], None if targets is None else targets[splitter.own]
            own = Shard(inputs, targets, self._processes.shard_sizes(len(inputs), describe_sample(inputs)))
            done = super().step(own, frozen=frozen)
            if splitter is None:
                return done
            step, rows = done.step, splitter.join_indices(done.step.excluded_rows)
            return replace(done, step=Step(step.index, splitter.join(step.predictions), step.diagnostics, rows))
