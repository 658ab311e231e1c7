"""The callbacks of an adapter, called as one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from regtta.engine.stream import StreamStep
from regtta.types import StepView

if TYPE_CHECKING:
    from regtta.adapter import Adapter


def call_after_step(adapter: "Adapter", done: StreamStep, make_view: Callable[[StreamStep], StepView]) -> None:
    """Call ``on_rollback``, ``on_step`` and ``on_view`` of the adapter's callbacks, in this order.

    Args:
        adapter: the adapter.
        done: result of the batch.
        make_view: returns the view of the batch, for callbacks that want it.
    """
    step = done.step
    wanting = [callback for callback in adapter.callbacks if callback.wants_view(step.index)]
    view = make_view(done) if wanting else None
    for callback in adapter.callbacks:
        if done.returned:
            callback.on_rollback(adapter, done.returned)
        callback.on_step(adapter, step)
    for callback in wanting:
        if view is not None:
            callback.on_view(adapter, view)
