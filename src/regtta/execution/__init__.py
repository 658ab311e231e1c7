"""How a step is carried out: precision, memory layout, CUDA graphs, flat parameters, locks and several processes."""

from regtta.execution.cuda_graphs import FIRST, Replay
from regtta.execution.distributed import ALONE, Processes, failing_together, processes_of
from regtta.execution.flat_params import Flat, bound_in_place, lay_together
from regtta.execution.fused_optim import bare_step
from regtta.execution.locking import SharedLock
from regtta.execution.modes import FAST, PLAIN, Execution, Precision
from regtta.execution.sync_batch_norm import Shares

__all__ = [
    "ALONE",
    "FAST",
    "FIRST",
    "PLAIN",
    "Execution",
    "Flat",
    "Precision",
    "Processes",
    "Replay",
    "SharedLock",
    "Shares",
    "bare_step",
    "bound_in_place",
    "failing_together",
    "lay_together",
    "processes_of",
]
