"""Guard that permits learning only from shifts that adaptation is known to repair."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regtta.guards.base import Guard, GuardContext, GuardState, Rollback
from regtta.guards.chain import IncomingBatch
from regtta.guards.gate import NO_SHIFT
from regtta.options import check_fraction, check_non_negative, check_positive, check_positive_int
from regtta.persistence import require_bool, require_count, require_mapping
from regtta.statistics import (
    EwmaAutocorrelation,
    EwmaCovariance,
    EwmaMoments,
    fit_sensor_faults,
    moments_device,
    shift_test,
)

RETEST = (
    0.1  # share of new samples after which the test of the sensors is repeated, which costs as much as a small model
)
_MOMENTS = ("features", "outputs", "inputs", "autocorrelation")
OVER = 0.5  # test statistic of the features, relative to its critical value, below which a shift is over
OTHER_POPULATION = "the columns depend on each other in another way than on the source: another population"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RepairableShift(Guard):
    """Guard that permits learning from sensor faults and degraded images, but not from another population.

    Aligning features restores a model whose inputs are measured differently. Where the population itself has changed,
    such as with another season or region, differences of the features are real, and removing them may do great harm.
    Three questions are asked of the recent samples, without labels:

    1. Have the features of the source model shifted by more than ``tolerance``? If not, there is nothing to gain.
    2. Are the inputs a table whose columns depend on each other as on the source, up to one gain for each column
       (:func:`regtta.statistics.fit_sensor_faults`)? Then single sensors have changed, which adaptation repairs.
    3. If not: have the outputs of the source model moved by more than ``broken`` of their standard deviations? Then
       there is little to lose.

    Otherwise batches are rejected, and the model is rolled back to the source. Inputs that are not a table, such as
    images, pass with the first question. Samples that are correlated with the ones before them, such as hourly
    measurements, count as fewer. No test of inputs and features can see labels that change by themselves.

    Args:
        level: significance level of the test for a shift of the features, per batch.
        tolerance: largest shift to ignore, in source standard deviations.
        unexplained: largest root mean square of the correlations between columns that gains leave unexplained.
        broken: shift of the mean output, in standard deviations on the source, beyond which predictions are useless.
        memory: time constant of the moments of features and outputs, in samples.
        input_memory: time constant of the covariance of the inputs; it starts anew when the features show no shift.
        least: number of samples required before learning may begin.
    """

    level: float = 1e-3
    tolerance: float = 0.1
    unexplained: float = 0.03
    broken: float = 1.0
    memory: int = 256
    input_memory: int = 2048
    least: int = 32

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_fraction("level", self.level)
        check_non_negative("tolerance", self.tolerance)
        check_non_negative("unexplained", self.unexplained)
        check_positive("broken", self.broken)
        check_positive_int("memory", self.memory)
        check_positive_int("input_memory", self.input_memory)
        check_positive_int("least", self.least)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        return _RepairableShiftState(self, context)


class _RepairableShiftState(GuardState):
    def __init__(self, guard: RepairableShift, context: GuardContext) -> None:
        self.guard = guard
        self.source, head = context.require("RepairableShift")
        self.whitening = context.whitening("RepairableShift")
        self.weight = head.weight.detach().to(moments_device(head.weight.device), torch.float64)
        self.mean = self.source.mean.to(self.weight)
        # Columns that are constant on the source keep their unit.
        self.scale = self.source.input_variance.sqrt()
        self.scale = torch.where(self.scale > 0, self.scale, torch.ones_like(self.scale))
        self.spread = self.source.output_moments(self.weight)[1].clamp_min(torch.finfo(torch.float64).tiny).sqrt()
        self.features = EwmaMoments(guard.memory)
        self.outputs = EwmaMoments(guard.memory, products=False)
        self.inputs = EwmaCovariance(guard.input_memory)
        self.autocorrelation = EwmaAutocorrelation(self.whitening.dimensions)
        self.pending = 0  # samples since the sensors were last tested
        self.explained: bool | None = None
        self._told = False

    def before_step(self, batch: IncomingBatch) -> str | Rollback | None:
        """Test the inputs and the features of the source model."""
        self._update(batch)
        guard = self.guard
        if self.features.count < guard.least:
            return f"fewer than {guard.least} samples to tell a shift by"
        # A model that has been adapted returns to the source only when the shift is clearly over.
        limit = OVER if batch.moved else 1.0
        if not self._exceeds(limit):
            self._forget_inputs()
            return Rollback(NO_SHIFT, "source") if batch.moved else NO_SHIFT
        if not _is_table(batch) or self._sensors_explain() or self._is_broken():
            return None
        return Rollback(OTHER_POPULATION, "source") if batch.moved else OTHER_POPULATION

    def _exceeds(self, limit: float) -> bool:
        """Return True if the features have shifted, by a statistic above ``limit`` times its critical value.

        Where the samples are correlated, it must exceed the limit with the correction for that as well.
        """
        if self._statistic() <= limit:
            return False
        times = self.autocorrelation.time()
        return bool((times == 1).all()) or self._statistic(times) > limit

    def _statistic(self, times: Tensor | None = None) -> float:
        """Return the statistic of the shift relative to its critical value, given autocorrelation times (K,)."""
        guard, count = self.guard, self.source.count
        found = shift_test(
            self.features, source_count=count, level=guard.level, tolerance=guard.tolerance, inflation=times
        )
        return max(found.mean, found.spread)

    def _update(self, batch: IncomingBatch) -> None:
        coordinates = batch.coordinates_float64(self.whitening, batch.source)
        self.features.update(coordinates)
        self.autocorrelation.update(coordinates)
        gap = batch.source.flat_features.detach().to(self.mean) - self.mean
        self.outputs.update((gap @ self.weight.T).cpu() / self.spread)
        if self._has_covariance(batch):
            rows = batch.processes.gather(batch.tensors[0].detach(), batch.counts).double().cpu()
            self.inputs.update((rows - self.source.input_mean) / self.scale)
            self.pending += len(rows)

    def _forget_inputs(self) -> None:
        self.inputs.reset()
        self.pending, self.explained = 0, None

    def _has_covariance(self, batch: IncomingBatch) -> bool:
        return _is_table(batch) and len(self.source.input_covariance) == batch.tensors[0].shape[1]

    def _sensors_explain(self) -> bool:
        if not self.inputs.count:  # statistics of an earlier version
            if not self._told:
                self._told = True
                logger.warning(
                    "The source statistics have no covariance of the inputs, by which sensor faults are told from "
                    "another population: they are of an earlier version, or of more than 256 columns. The model adapts "
                    "only if its outputs move far. Collect them again, or remove the guard."
                )
            return False
        if self.explained is None or self.pending >= RETEST * self.inputs.count:
            found = fit_sensor_faults(
                self.source.input_covariance / torch.outer(self.scale, self.scale),
                self.inputs.covariance,
                source_count=self.source.input_count,
                target_count=max(2.0, self.inputs.count / float(self.autocorrelation.time().mean())),
            )
            self.explained, self.pending = found.explain(self.guard.unexplained), 0
        return self.explained

    def _is_broken(self) -> bool:
        return float(self.outputs.mean.abs().max()) > self.guard.broken

    def state_dict(self) -> dict[str, Any]:
        moments = {name: getattr(self, name).state_dict() for name in _MOMENTS}
        return {**moments, "pending": self.pending, "explained": self.explained}

    def validate_state(self, state: object, path: str) -> None:
        if isinstance(state, Mapping) and not state:  # of a stream that was started without this guard
            return
        found = require_mapping(path, state, (*_MOMENTS, "pending", "explained"))
        self.autocorrelation.validate_state(found["autocorrelation"], f"{path}/autocorrelation")
        require_count(f"{path}/pending", found["pending"])
        if found["explained"] is not None:
            require_bool(f"{path}/explained", found["explained"])
        self.features.validate_state(found["features"], f"{path}/features", self.whitening.dimensions)
        self.outputs.validate_state(found["outputs"], f"{path}/outputs", len(self.weight))
        self.inputs.validate_state(found["inputs"], f"{path}/inputs", len(self.source.input_covariance))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in _MOMENTS:
            moments = getattr(self, name)
            moments.load_state_dict(state[name]) if state else moments.reset()
        self.pending, self.explained = state.get("pending", 0), state.get("explained")


def _is_table(batch: IncomingBatch) -> bool:
    return len(batch.tensors) == 1 and batch.tensors[0].ndim == 2 and batch.tensors[0].is_floating_point()
