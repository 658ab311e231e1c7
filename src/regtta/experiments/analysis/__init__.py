"""Analyses of a model's feature space, as in the paper. The plots are in :mod:`regtta.experiments.figures`."""

from regtta.experiments.analysis.clouds import Clouds, Transport, principal_clouds
from regtta.experiments.analysis.correlation import weight_correlation
from regtta.experiments.analysis.features import features_of
from regtta.experiments.analysis.gradients import GradientNorms, gradient_norms
from regtta.experiments.analysis.histograms import FeatureHistograms, Histogram, feature_histograms
from regtta.experiments.analysis.normality import NormalityReport, Shapes, ShapeSummary, normality_report, shapes_of
from regtta.experiments.analysis.outputs import OutputReport, output_report
from regtta.experiments.analysis.predictions import PredictionReport, prediction_report, predictions_over
from regtta.experiments.analysis.reconstruction import Reconstruction, reconstruction
from regtta.experiments.analysis.reports import Report
from regtta.experiments.analysis.shift import ShiftReport, shift_report
from regtta.experiments.analysis.stream import StreamRecord, StreamRecorder, record_stream
from regtta.experiments.analysis.subspace import SubspaceReport, subspace_report
from regtta.experiments.analysis.transport import transport_distance
from regtta.experiments.analysis.umap_clouds import umap_clouds

__all__ = [
    "Clouds",
    "FeatureHistograms",
    "GradientNorms",
    "Histogram",
    "NormalityReport",
    "OutputReport",
    "PredictionReport",
    "Reconstruction",
    "Report",
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
