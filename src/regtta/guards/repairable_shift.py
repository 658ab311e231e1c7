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
from regtta.statistics import EwmaCovariance, EwmaMoments, fit_sensor_faults, shift_test

RETEST = (
    0.1  # share of new samples after which the test of the sensors is repeated, which costs as much as a small model
)
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
    images, pass with the first question. No test of inputs and features can see labels that change by themselves.

    Args:
        level: significance level of the test for a shift of the features, per batch.
        tolerance: largest shift to ignore, in source standard deviations.
        unexplained: largest root mean square of the correlations between columns that gains leave unexplained.
        broken: shift of the mean output, in standard deviations on the source, beyond which predictions are useless.
        memory: time constant of the moments, in samples.
        least: number of samples required before learning may begin.
    """

    level: float = 1e-3
    tolerance: float = 0.1
    unexplained: float = 0.03
    broken: float = 1.0
    memory: int = 2048
    least: int = 32

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_fraction("level", self.level)
        check_non_negative("tolerance", self.tolerance)
        check_non_negative("unexplained", self.unexplained)
        check_positive("broken", self.broken)
        check_positive_int("memory", self.memory)
        check_positive_int("least", self.least)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        return _RepairableShiftState(self, context)


class _RepairableShiftState(GuardState):
    def __init__(self, guard: RepairableShift, context: GuardContext) -> None:
        self.guard = guard
        self.source, head = context.require("RepairableShift")
        self.whitening = context.whitening("RepairableShift")
        self.weight = head.weight.detach().double().cpu()
        self.spread = self.source.output_moments(self.weight)[1].clamp_min(torch.finfo(torch.float64).tiny).sqrt()
        self.features = EwmaMoments(guard.memory)
        self.outputs = EwmaMoments(guard.memory, products=False)
        self.inputs = EwmaCovariance(guard.memory)
        self.pending = 0  # samples since the sensors were last tested
        self.explained: bool | None = None
        self._told = False

    def before_step(self, batch: IncomingBatch) -> str | Rollback | None:
        """Test the inputs and the features of the source model."""
        self._update(batch)
        guard = self.guard
        if self.features.count < guard.least:
            return f"fewer than {guard.least} samples to tell a shift by"
        found = shift_test(self.features, source_count=self.source.count, level=guard.level, tolerance=guard.tolerance)
        if not found.shifted:
            return Rollback(NO_SHIFT, "source") if batch.moved else NO_SHIFT
        if not _is_table(batch) or self._sensors_explain() or self._is_broken():
            return None
        return Rollback(OTHER_POPULATION, "source") if batch.moved else OTHER_POPULATION

    def _update(self, batch: IncomingBatch) -> None:
        self.features.update(batch.coordinates_float64(self.whitening, batch.source))
        features = batch.source.features if batch.source.features.ndim == 2 else batch.source.flat_features
        gap = features.detach().double().cpu() - self.source.mean
        self.outputs.update(gap @ self.weight.T / self.spread)
        if self._has_covariance(batch):
            rows = batch.processes.gather(batch.tensors[0].detach(), batch.counts).double().cpu()
            self.inputs.update((rows - self.source.input_mean) / self._scale())
            self.pending += len(rows)

    def _scale(self) -> Tensor:
        """Return the standard deviation of each column on the source, 1 for a column that is constant there."""
        deviation = self.source.input_variance.sqrt()
        return torch.where(deviation > 0, deviation, torch.ones_like(deviation))

    def _has_covariance(self, batch: IncomingBatch) -> bool:
        return _is_table(batch) and len(self.source.input_covariance) == batch.tensors[0].shape[1]

    def _sensors_explain(self) -> bool:
        if not self.inputs.count:  # statistics of an earlier version
            if not self._told:
                self._told = True
                logger.warning(
                    "The source statistics have no covariance of the inputs, by which sensor faults are told from "
                    "another population. Until they are collected again, a model adapts only if its outputs moved far."
                )
            return False
        if self.explained is None or self.pending >= RETEST * self.inputs.count:
            scale = self._scale()
            found = fit_sensor_faults(
                self.source.input_covariance / torch.outer(scale, scale),
                self.inputs.covariance,
                source_count=self.source.input_count,
                target_count=self.inputs.count,
            )
            self.explained, self.pending = found.explain(self.guard.unexplained), 0
        return self.explained

    def _is_broken(self) -> bool:
        return float(self.outputs.mean.abs().max()) > self.guard.broken

    def state_dict(self) -> dict[str, Any]:
        moments = {name: getattr(self, name).state_dict() for name in ("features", "outputs", "inputs")}
        return {**moments, "pending": self.pending, "explained": self.explained}

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("features", "outputs", "inputs", "pending", "explained"))
        require_count(f"{path}/pending", found["pending"])
        if found["explained"] is not None:
            require_bool(f"{path}/explained", found["explained"])
        self.features.validate_state(found["features"], f"{path}/features", self.whitening.dimensions)
        self.outputs.validate_state(found["outputs"], f"{path}/outputs", len(self.weight))
        self.inputs.validate_state(found["inputs"], f"{path}/inputs", len(self.source.input_covariance))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("features", "outputs", "inputs"):
            getattr(self, name).load_state_dict(state[name])
        self.pending, self.explained = state["pending"], state["explained"]


def _is_table(batch: IncomingBatch) -> bool:
    return len(batch.tensors) == 1 and batch.tensors[0].ndim == 2 and batch.tensors[0].is_floating_point()
