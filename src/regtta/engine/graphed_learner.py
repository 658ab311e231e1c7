"""A learner whose steps are captured as CUDA graphs."""

import logging

import torch
from torch import Tensor

from regtta.engine.forward import TOLERANCES, ForwardFunctions, GraphedForward, Shard
from regtta.engine.learner import Learner, TakenStep
from regtta.engine.rollback import AdaptableState
from regtta.execution import Execution
from regtta.methods import Method, MethodContext
from regtta.models import BufferSlots, Forward, Inputs

logger = logging.getLogger(__name__)


class GraphedLearner(Learner):
    """Learner that replays its step from a CUDA graph, if every step performs the same operations.

    If steps differ from each other, or samples were excluded from a batch, steps run normally.
    """

    _graphed: GraphedForward | None = None

    def __init__(
        self,
        forward: ForwardFunctions,
        state: AdaptableState,
        method: Method,
        context: MethodContext,
        slots: BufferSlots,
        *,
        execution: Execution,
    ) -> None:
        super().__init__(forward, state, method, context, slots, compiled=True)
        reason = ""
        if not self.rule.capturable:
            reason = f"those of {method.name} with these options are not all the same"
        elif method.schedule.optimizer is not None and not method.schedule.elementwise:
            reason = "the optimizer is user-defined and may do something else at every step"
        if reason:
            logger.warning("Steps are not captured: %s.", reason)
            return
        tolerance = TOLERANCES[execution.precision]
        self._graphed = GraphedForward(self._body, "A step", tolerance=tolerance, undo=self._restore_tensors)
        self.is_captured = True
        self.reset()  # with an optimizer that can be captured

    def reset(self) -> None:
        """Return to the source model, with a new optimizer and without the graphs, which update the old one."""
        super().reset()
        if self._graphed is not None:
            self._graphed.reset()

    def _stop_compiling(self) -> None:
        super()._stop_compiling()
        self._graphed = None

    def _body(self, inputs: Inputs) -> tuple[Tensor, ...]:
        taken = super()._take(Shard(inputs, None, (len(inputs),)), repeated=False)
        numbers = taken.numbers if isinstance(taken.numbers, Tensor) else torch.tensor(taken.numbers)
        return taken.forward.features, taken.forward.outputs, numbers

    def _take(self, shard: Shard, repeated: bool) -> TakenStep:
        if self._graphed is None or not shard.whole:
            return super()._take(shard, repeated)
        features, outputs, numbers = self._graphed(shard.inputs)
        # A replay counts nothing, and the call that captures counts twice.
        self.batch_norm.load_state_dict(self._counts_before)
        self.batch_norm.count(len(shard.inputs))
        return TakenStep(Forward(features, outputs), None if self._optimizer is None else numbers[-2], numbers)
