"""Options of a session, validated."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from regtta.engine.serving import ServingOptions
from regtta.execution import Communicator, Execution
from regtta.guards import Guard
from regtta.methods import Method
from regtta.models import FeaturePooling, OutputSelection, check_output_selection, check_pooling
from regtta.options import check_bool
from regtta.statistics import SourceStatistics


@dataclass(frozen=True)
class SessionOptions:
    """Options of a session.

    Attributes:
        method: the method.
        source: the source statistics, if given.
        guards: the guards.
        execution: requested execution options.
        processes: processes that share each batch.
        whole_batches: True if every process passes the same whole batch; without effect in one process.
        output: selection of the prediction from what the model returns.
        pooling: the user's function from the head's input to features.
        serving: which predictions are handed out.
    """

    method: Method
    source: SourceStatistics | None
    guards: Sequence[Guard]
    execution: Execution
    processes: Communicator
    whole_batches: bool = False
    output: OutputSelection | None = None
    pooling: FeaturePooling | None = None
    serving: ServingOptions = field(default_factory=ServingOptions)

    def __post_init__(self) -> None:
        """Validate fields."""
        check_bool("whole_batches", self.whole_batches)
        check_output_selection(self.output)
        check_pooling(self.pooling)
        self.serving.check(self.source, self.processes)

    @property
    def splits_batches(self) -> bool:
        """True if whole batches are split between several processes."""
        return self.whole_batches and self.processes.size > 1
