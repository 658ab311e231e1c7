"""A batch as the adapted model and the source model see it, for those who watch a stream."""

from dataclasses import dataclass

from regtta.models import Forward
from regtta.types import Step


@dataclass(frozen=True)
class StepView:
    """What ``Adapter.adapt(x, look=...)`` shows.

    Attributes:
        step: what came of the batch.
        answered: the pass that its predictions are of.
        source: the pass of the model as it was when the stream began, in eval mode; the very same object as
            ``answered`` while the model is that one.
    """

    step: Step
    answered: Forward
    source: Forward
