"""The loop over the batches of a stream, one learning step with exact rollback, and the checks before both."""

from regtta.engine.callbacks import call_after_step
from regtta.engine.forward import Shard
from regtta.engine.serving import Limit, Served, ServedStream, ServingOptions
from regtta.engine.session import Session
from regtta.engine.session_options import SessionOptions
from regtta.engine.stream import Stream, StreamStep
from regtta.engine.summary import capture_warnings, summarize
from regtta.engine.validation import check_arguments, check_head_name, check_needs, check_targets, with_required_guards

__all__ = [
    "Limit",
    "Served",
    "ServedStream",
    "ServingOptions",
    "Session",
    "SessionOptions",
    "Shard",
    "Stream",
    "StreamStep",
    "call_after_step",
    "capture_warnings",
    "check_arguments",
    "check_head_name",
    "check_needs",
    "check_targets",
    "summarize",
    "with_required_guards",
]
