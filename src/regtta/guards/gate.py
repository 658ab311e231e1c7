"""Guard that permits learning only under a significant feature shift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from regtta.guards.base import Guard, GuardContext, GuardState, Rollback
from regtta.guards.chain import IncomingBatch
from regtta.options import check_fraction, check_non_negative, check_positive_int
from regtta.persistence import require_mapping
from regtta.statistics import EwmaAutocorrelation, EwmaMoments, Whitening, shift_test

NO_SHIFT = "no shift"
ALIGNED_WITH_SOURCE = "aligned with the source"


@dataclass(frozen=True)
class Gate(Guard):
    """Guard that permits learning only while the feature shift is statistically significant.

    If the features of the source model show no shift, batches are rejected and the model is rolled back to the source.
    If they do, but the features of the adapted model are aligned, batches are rejected without a rollback. See
    :func:`regtta.statistics.shift_tests.shift_test` for the test. Samples that are correlated with the ones before
    them, such as hourly measurements, count as fewer (:class:`regtta.statistics.EwmaAutocorrelation`).

    Args:
        level: significance level per batch.
        tolerance: largest shift to ignore, in source standard deviations.
        memory: time constant of the moments, in samples.
        least: number of samples required before learning may begin.
    """

    level: float = 1e-3
    tolerance: float = 0.1
    memory: int = 128
    least: int = 32

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_fraction("level", self.level)
        check_non_negative("tolerance", self.tolerance)
        check_positive_int("memory", self.memory)
        check_positive_int("least", self.least)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        source, _ = context.require("Gate")
        return _GateState(self, context.whitening("Gate"), source.count)


class _GateState(GuardState):
    def __init__(self, gate: Gate, whitening: Whitening, source_count: int) -> None:
        self.gate = gate
        self.whitening = whitening
        self.source_count = source_count
        self.at_source = EwmaMoments(gate.memory)
        self.at_current = EwmaMoments(gate.memory)
        self.autocorrelation = EwmaAutocorrelation(whitening.dimensions)

    def before_step(self, batch: IncomingBatch) -> str | Rollback | None:
        """Test the features of the source model and, if the model has been adapted, those of the current model."""
        coordinates = batch.coordinates_float64(self.whitening, batch.source)
        self.at_source.update(coordinates)
        self.autocorrelation.update(coordinates)  # its time is computed only if the test without it finds a shift
        if self.at_source.count < self.gate.least:
            return f"fewer than {self.gate.least} samples to tell a shift by"
        if not self._shifted(self.at_source) or not self._shifted_despite_autocorrelation():
            return Rollback(NO_SHIFT, "source") if batch.moved else NO_SHIFT
        if not batch.moved:
            return None
        self.at_current.update(batch.coordinates_float64(self.whitening, batch.current))
        # Without the correction: after a change of the stream it would find the features aligned too early.
        return None if self._shifted(self.at_current) else ALIGNED_WITH_SOURCE

    def _shifted_despite_autocorrelation(self) -> bool:
        times = self.autocorrelation.time()
        return bool((times == 1).all()) or self._shifted(self.at_source, times)

    def on_rollback(self) -> None:
        """Discard the moments of the adapted model."""
        self.at_current.reset()

    def state_dict(self) -> dict[str, Any]:
        return {
            "source": self.at_source.state_dict(),
            "current": self.at_current.state_dict(),
            "autocorrelation": self.autocorrelation.state_dict(),
        }

    def validate_state(self, state: object, path: str) -> None:
        found = dict(require_mapping(path, state))
        if "autocorrelation" in found:  # earlier versions wrote none
            self.autocorrelation.validate_state(found.pop("autocorrelation"), f"{path}/autocorrelation")
        require_mapping(path, found, ("source", "current"))
        self.at_source.validate_state(found["source"], f"{path}/source", self.whitening.dimensions)
        self.at_current.validate_state(found["current"], f"{path}/current", self.whitening.dimensions)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.at_source.load_state_dict(state["source"])
        self.at_current.load_state_dict(state["current"])
        self.autocorrelation.reset()
        if "autocorrelation" in state:
            self.autocorrelation.load_state_dict(state["autocorrelation"])

    def _shifted(self, recent: EwmaMoments, inflation: Tensor | None = None) -> bool:
        if recent.count < self.gate.least:
            return True
        return shift_test(
            recent,
            source_count=self.source_count,
            level=self.gate.level,
            tolerance=self.gate.tolerance,
            inflation=inflation,
        ).shifted
