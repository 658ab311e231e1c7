"""Plots of ``analysis`` results. ``draw_*`` functions take ``ax=None`` and return Axes, others return Figures."""

from regtta.experiments.figures.clouds import cloud_panels, draw_cloud
from regtta.experiments.figures.files import save_figure
from regtta.experiments.figures.histograms import draw_gradient_norms, draw_histogram, draw_normality, histogram_grid
from regtta.experiments.figures.outputs import draw_outputs
from regtta.experiments.figures.predictions import draw_predictions
from regtta.experiments.figures.reconstruction import draw_reconstruction
from regtta.experiments.figures.running import draw_running, running_panels
from regtta.experiments.figures.shift import draw_shift
from regtta.experiments.figures.stream import draw_stream, stream_panels
from regtta.experiments.figures.style import caption
from regtta.experiments.figures.subspace import draw_significance, draw_spectrum

__all__ = [
    "caption",
    "cloud_panels",
    "draw_cloud",
    "draw_gradient_norms",
    "draw_histogram",
    "draw_normality",
    "draw_outputs",
    "draw_predictions",
    "draw_reconstruction",
    "draw_running",
    "draw_shift",
    "draw_significance",
    "draw_spectrum",
    "draw_stream",
    "histogram_grid",
    "running_panels",
    "save_figure",
    "stream_panels",
]
