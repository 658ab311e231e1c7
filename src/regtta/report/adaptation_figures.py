"""Figures of an adaptation record, drawn from the numbers stored in it. A figure without its numbers is omitted."""

from collections.abc import Mapping
from typing import Any

from regtta.report.analysis import (
    FeatureHistograms,
    GradientNorms,
    NormalityReport,
    OutputReport,
    PredictionReport,
    Reconstruction,
    ShiftReport,
    StreamRecord,
    SubspaceReport,
)
from regtta.report.content import Picture
from regtta.report.figures import (
    draw_gradient_norms,
    draw_normality,
    draw_outputs,
    draw_predictions,
    draw_reconstruction,
    draw_shift,
    draw_significance,
    draw_spectrum,
    figure_of,
    histogram_grid,
    stream_panels,
)

Record = Mapping[str, Any]


def shift_pictures(record: Record) -> tuple[Picture, ...]:
    """Draw means and spreads along the source directions, and the reconstruction error from these directions."""
    return (*_moment_pictures(record), *_reconstruction_pictures(record))


def _moment_pictures(record: Record) -> tuple[Picture, ...]:
    if "shift" not in record:
        return ()
    shift = ShiftReport.from_dict(record["shift"])
    return (
        Picture(
            "Means along the source's directions",
            "Marks of the target's mean before and after adapting, around a line at zero, the source's.",
            "Where the target's features lie, in the source's standard deviations. On the line is on the source.",
            figure_of(draw_shift(shift, "means")),
        ),
        Picture(
            "Spreads along the source's directions",
            "Marks of the target's spread before and after adapting, around a line at one, the source's.",
            "How widely the target's features scatter, over the source's. On the line is like the source.",
            figure_of(draw_shift(shift, "spreads")),
        ),
    )


def _reconstruction_pictures(record: Record) -> tuple[Picture, ...]:
    if "reconstruction" not in record:
        return ()
    return (
        Picture(
            "Reconstruction from source directions",
            "Falling curves of the error against the number of directions, before and after adapting.",
            "How far features lie outside what n source directions span; lower is more like the source.",
            figure_of(draw_reconstruction(Reconstruction.from_dict(record["reconstruction"]))),
        ),
    )


def prediction_pictures(record: Record) -> tuple[Picture, ...]:
    """Draw the distribution of predictions and, with labels, predictions against labels."""
    made = []
    if "outputs" in record:
        made.append(
            Picture(
                "Distribution of predictions",
                "Histograms of predictions before and after adapting, over the source's distribution.",
                "Grey: what the unadapted head makes of the source's features, as a Gaussian.",
                figure_of(draw_outputs(OutputReport.from_dict(record["outputs"]))),
            )
        )
    for name, plain in record.get("predictions", {}).items():
        title = "as trained" if name == "before" else "adapted"
        made.append(
            Picture(
                f"Predictions against labels, {title}",
                f"Scatter of predictions over labels, {title}, with the line where both agree.",
                "Rows drawn at random from the stream, predicted in eval mode.",
                figure_of(draw_predictions(PredictionReport.from_dict(plain))),
            )
        )
    return tuple(made)


def stream_pictures(record: Record) -> tuple[Picture, ...]:
    """Draw loss, gradient norm, displacement, moments and online R² over the stream."""
    stream = StreamRecord.from_dict(record["stream"])
    return (
        Picture(
            "Over the stream",
            "Panels over batches: loss, gradient norm, displacement, shift and spread along source directions.",
            "One point a batch. Crosses mark batches that were not learned from.",
            stream_panels(stream),
        ),
    )


def subspace_pictures(record: Record) -> tuple[Picture, ...]:
    """Draw the source spectrum, the weight of each direction, and gradient norms of raw dimensions."""
    if "subspace" not in record:
        return ()
    subspace = SubspaceReport.from_dict(record["subspace"])
    return (
        Picture(
            "Spectrum of the source's features",
            "Falling variances on logarithmic axes with the share of variance and the rank.",
            "Directions beyond the rank have no variance to speak of.",
            figure_of(draw_spectrum(subspace)),
        ),
        Picture(
            "Variance and weight of each direction",
            "Scatter of weights over variances; filled marks carry the output.",
            "Weights as SSA takes them: 1 plus how far a step along the direction moves the output.",
            figure_of(draw_significance(subspace)),
        ),
        Picture(
            "How raw dimensions move the subspace",
            "Histogram of gradient norms between 0 and 1.",
            "0: a raw dimension that the subspace does not see; 1: one that lies wholly inside it.",
            figure_of(draw_gradient_norms(GradientNorms.from_dict(record["gradients"]))),
        ),
    )


def assumption_pictures(record: Record) -> tuple[Picture, ...]:
    """Draw how far the target features are from the Gaussian that alignment assumes."""
    if "normality" not in record:
        return ()
    return (
        Picture(
            "Distance to a Gaussian",
            "Sorted distances of raw and projected dimensions to their own Gaussian, with the 5 % level.",
            "Of the target's features before adapting. The lower curve is the more Gaussian.",
            figure_of(draw_normality(NormalityReport.from_dict(record["normality"]))),
        ),
        Picture(
            "Some dimensions beside their Gaussian",
            "Histograms of raw dimensions above and of projected ones below, each with a Gaussian curve.",
            "Of the target's features before adapting.",
            histogram_grid(FeatureHistograms.from_dict(record["histograms"])),
        ),
    )
