"""Statistics of the source features: collecting, saving and merging them, and tests of shifts against them."""

from regtta.statistics.collection import collect
from regtta.statistics.collectors import ConstantStatistics, StatisticsCollector
from regtta.statistics.feature_checks import check_first_batch, describe_few_samples, describe_small_variation
from regtta.statistics.label_shift import LabelShiftEvidence, evidence_from_coordinates, label_shift_evidence
from regtta.statistics.linalg import LinAlgError, stable_eigh, stable_svd, truncated_inverse
from regtta.statistics.moments import EwmaMoments, Moments, RunningMoments, moments_device
from regtta.statistics.outliers import MIN_ROWS, ColumnArray, column_values, deviations, is_table, to_column_array
from regtta.statistics.preprocessing import describe_preprocessing
from regtta.statistics.shift_tests import (
    is_nonstationary,
    min_reweighting_divergence,
    shift_test,
    stationarity_statistic,
)
from regtta.statistics.source import EXPLAINED_VARIANCE, VALID_TOLERANCE, Clip, SourceStatistics, Subspace
from regtta.statistics.whitening import Whitening

__all__ = [
    "EXPLAINED_VARIANCE",
    "MIN_ROWS",
    "VALID_TOLERANCE",
    "Clip",
    "ColumnArray",
    "ConstantStatistics",
    "EwmaMoments",
    "LabelShiftEvidence",
    "LinAlgError",
    "Moments",
    "RunningMoments",
    "SourceStatistics",
    "StatisticsCollector",
    "Subspace",
    "Whitening",
    "check_first_batch",
    "collect",
    "column_values",
    "describe_few_samples",
    "describe_preprocessing",
    "describe_small_variation",
    "deviations",
    "evidence_from_coordinates",
    "is_nonstationary",
    "is_table",
    "label_shift_evidence",
    "min_reweighting_divergence",
    "moments_device",
    "shift_test",
    "stable_eigh",
    "stable_svd",
    "stationarity_statistic",
    "to_column_array",
    "truncated_inverse",
]
