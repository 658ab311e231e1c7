"""How a step is carried out: precision, memory layout, CUDA graphs, flat parameters, locks and several processes."""

from regtta.execution.cuda_graphs import WARMUP_CALLS, GraphedCallable
from regtta.execution.distributed import SINGLE_PROCESS, BatchSplitter, Communicator, make_communicator, sync_errors
from regtta.execution.flat_params import Flat, flatten_storage, unmovable_tensors
from regtta.execution.locking import SharedLock
from regtta.execution.modes import FAST, PLAIN, Execution, Precision
from regtta.execution.sync_batch_norm import BatchSharding

__all__ = [
    "FAST",
    "PLAIN",
    "SINGLE_PROCESS",
    "WARMUP_CALLS",
    "BatchSharding",
    "BatchSplitter",
    "Communicator",
    "Execution",
    "Flat",
    "GraphedCallable",
    "Precision",
    "SharedLock",
    "flatten_storage",
    "make_communicator",
    "sync_errors",
    "unmovable_tensors",
]
