"""Analyses of a model's feature space, as in the paper. The plots are in :mod:`regtta.report.figures`."""

from regtta.report.analysis.base import Array, Report, plain_of
from regtta.report.analysis.clouds import Clouds, Transport, principal_clouds, transport_distance, umap_clouds
from regtta.report.analysis.distributions import (
    FeatureHistograms,
    Histogram,
    NormalityReport,
    Shapes,
    ShapeSummary,
    feature_histograms,
    normality_report,
    shapes_of,
)
from regtta.report.analysis.feature_passes import features_of
from regtta.report.analysis.prediction_analysis import (
    OutputReport,
    PredictionReport,
    output_report,
    prediction_report,
    predictions_over,
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
    "Array",
    "Clouds",
    "FeatureHistograms",
    "GradientNorms",
    "Histogram",
    "NormalityReport",
    "OutputReport",
    "PredictionReport",
    "Reconstruction",
    "Report",
    "RunningScores",
    "ShapeSummary",
    "Shapes",
    "ShiftReport",
    "StreamRecord",
    "StreamRecorder",
    "SubspaceReport",
    "Transport",
    "feature_histograms",
    "features_of",
    "gradient_norms",
    "normality_report",
    "output_report",
    "plain_of",
    "prediction_report",
    "predictions_over",
    "principal_clouds",
    "reconstruction",
    "record_stream",
    "shapes_of",
    "shift_report",
    "subspace_report",
    "transport_distance",
    "umap_clouds",
    "weight_correlation",
]
