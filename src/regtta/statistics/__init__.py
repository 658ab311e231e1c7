"""Statistics of the source features: collecting, saving and merging them, and tests of shifts against them."""

from regtta.statistics.collection import collect
from regtta.statistics.collectors import Gatherer, Stored
from regtta.statistics.label_shift import LabelShiftEvidence, evidence_of, label_shift_evidence
from regtta.statistics.linalg import LinAlgError, singular_vectors
from regtta.statistics.moments import RecentMoments, RunningMoments
from regtta.statistics.outliers import LEAST_ROWS, Columns, as_columns, column_values, deviations, is_table
from regtta.statistics.shift_tests import reweighting_needed, shift_test, steadiness, unsteady
from regtta.statistics.source import SHARE, VALID_TOLERANCE, SourceStatistics, Subspace
from regtta.statistics.whitening import Whitening

__all__ = [
    "LEAST_ROWS",
    "SHARE",
    "VALID_TOLERANCE",
    "Columns",
    "Gatherer",
    "LabelShiftEvidence",
    "LinAlgError",
    "RecentMoments",
    "RunningMoments",
    "SourceStatistics",
    "Stored",
    "Subspace",
    "Whitening",
    "as_columns",
    "collect",
    "column_values",
    "deviations",
    "evidence_of",
    "is_table",
    "label_shift_evidence",
    "reweighting_needed",
    "shift_test",
    "singular_vectors",
    "steadiness",
    "unsteady",
]
