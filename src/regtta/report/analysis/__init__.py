"""Analyses of a model's feature space, as in the paper. The plots are in :mod:`regtta.report.figures`."""

from regtta.report.analysis.base import AnalysisResult, Array, to_json_value
from regtta.report.analysis.clouds import Clouds, Transport, principal_clouds, transport_distance, umap_clouds
from regtta.report.analysis.distributions import (
    FeatureHistograms,
    Histogram,
    NormalityReport,
    Shapes,
    ShapeSummary,
    compute_shapes,
    feature_histograms,
    normality_report,
)
from regtta.report.analysis.feature_extraction import compute_features
from regtta.report.analysis.prediction_analysis import (
    OutputReport,
    PredictionReport,
    output_report,
    predict_and_score,
    prediction_report,
)
from regtta.report.analysis.shift_analysis import ShiftReport, shift_report
from regtta.report.analysis.stream_analysis import RunningScores, StreamRecord, StreamRecorder, record_stream
from regtta.report.analysis.subspace_analysis import (
    GradientNorms,
    Reconstruction,
    SubspaceReport,
    gradient_norms,
    reconstruction,
    subspace_report,
    weight_correlation,
)

__all__ = [
    "AnalysisResult",
    "Array",
    "Clouds",
    "FeatureHistograms",
    "GradientNorms",
    "Histogram",
    "NormalityReport",
    "OutputReport",
    "PredictionReport",
    "Reconstruction",
    "RunningScores",
    "ShapeSummary",
    "Shapes",
    "ShiftReport",
    "StreamRecord",
    "StreamRecorder",
    "SubspaceReport",
    "Transport",
    "compute_features",
    "compute_shapes",
    "feature_histograms",
    "gradient_norms",
    "normality_report",
    "output_report",
    "predict_and_score",
    "prediction_report",
    "principal_clouds",
    "reconstruction",
    "record_stream",
    "shift_report",
    "subspace_report",
    "to_json_value",
    "transport_distance",
    "umap_clouds",
    "weight_correlation",
]
