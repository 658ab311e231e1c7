"""The loop over the batches of a stream, one learning step with exact rollback, and the checks before both."""

from regtta.engine.callbacks import StepView
from regtta.engine.forward import Dealt, Passes, laid_out, runners, settled
from regtta.engine.learner import Learner
from regtta.engine.rollback import MovingParts
from regtta.engine.stream import Stream
from regtta.engine.validation import (
    check_arguments,
    check_complex,
    check_head_name,
    check_needs,
    check_state,
    check_targets,
    check_width,
    with_later_guards,
)

__all__ = [
    "Dealt",
    "Learner",
    "MovingParts",
    "Passes",
    "StepView",
    "Stream",
    "check_arguments",
    "check_complex",
    "check_head_name",
    "check_needs",
    "check_state",
    "check_targets",
    "check_width",
    "laid_out",
    "runners",
    "settled",
    "with_later_guards",
]
