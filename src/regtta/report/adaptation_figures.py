"""Figures of an adaptation record, drawn from the numbers stored in it. A figure without its numbers is omitted."""

from regtta.report.adaptation_summary import Record
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
from regtta.report.content import ReportFigure
from regtta.report.figures import (
    draw_gradient_norms,
    draw_normality,
    draw_outputs,
    draw_predictions,
    draw_reconstruction,
    draw_shift,
    draw_significance,
    draw_spectrum,
    histogram_grid,
    root_figure,
    stream_panels,
)


def make_shift_figures(record: Record) -> tuple[ReportFigure, ...]:
    """Draw means and spreads along the source directions, and the reconstruction error from these directions."""
    return (*_make_moment_figures(record), *_make_reconstruction_figures(record))


def _make_moment_figures(record: Record) -> tuple[ReportFigure, ...]:
    if "shift" not in record:
        return ()
    shift = ShiftReport.from_dict(record["shift"])
    return (
        ReportFigure(
            "Means along the source's directions",
            "Marks of the target's mean before and after adapting, around a line at zero, the source's.",
            "Where the target's features lie, in the source's standard deviations. On the line is on the source.",
            root_figure(draw_shift(shift, "means")),
        ),
        ReportFigure(
            "Spreads along the source's directions",
            "Marks of the target's spread before and after adapting, around a line at one, the source's.",
            "How widely the target's features scatter, over the source's. On the line is like the source.",
            root_figure(draw_shift(shift, "spreads")),
        ),
    )


def _make_reconstruction_figures(record: Record) -> tuple[ReportFigure, ...]:
    if "reconstruction" not in record:
        return ()
    return (
        ReportFigure(
            "Reconstruction from source directions",
            "Falling curves of the error against the number of directions, before and after adapting.",
            "How far features lie outside what n source directions span; lower is more like the source.",
            root_figure(draw_reconstruction(Reconstruction.from_dict(record["reconstruction"]))),
        ),
    )


def make_prediction_figures(record: Record) -> tuple[ReportFigure, ...]:
    """Draw the distribution of predictions and, with labels, predictions against labels."""
    figures = []
    if "outputs" in record:
        figures.append(
            ReportFigure(
                "Distribution of predictions",
                "Histograms of predictions before and after adapting, over the source's distribution.",
                "Grey: what the unadapted head makes of the source's features, as a Gaussian.",
                root_figure(draw_outputs(OutputReport.from_dict(record["outputs"]))),
            )
        )
    for name, values in record.get("predictions", {}).items():
        title = "as trained" if name == "before" else "adapted"
        figures.append(
            ReportFigure(
                f"Predictions against labels, {title}",
                f"Scatter of predictions over labels, {title}, with the line where both agree.",
                "Rows drawn at random from the stream, predicted in eval mode.",
                root_figure(draw_predictions(PredictionReport.from_dict(values))),
            )
        )
    return tuple(figures)


def make_stream_figures(record: Record) -> tuple[ReportFigure, ...]:
    """Draw loss, gradient norm, displacement, moments and online R² over the stream."""
    stream = StreamRecord.from_dict(record["stream"])
    return (
        ReportFigure(
            "Over the stream",
            "Panels over batches: loss, gradient norm, displacement, shift and spread along source directions.",
            "One point a batch. Crosses mark batches that were not learned from.",
            stream_panels(stream),
        ),
    )


def make_subspace_figures(record: Record) -> tuple[ReportFigure, ...]:
    """Draw the source spectrum, the weight of each direction, and gradient norms of raw dimensions."""
    if "subspace" not in record:
        return ()
    subspace = SubspaceReport.from_dict(record["subspace"])
    return (
        ReportFigure(
            "Spectrum of the source's features",
            "Falling variances on logarithmic axes with the share of variance and the rank.",
            "Directions beyond the rank have no variance to speak of.",
            root_figure(draw_spectrum(subspace)),
        ),
        ReportFigure(
            "Variance and weight of each direction",
            "Scatter of weights over variances; filled marks carry the output.",
            "Weights as SSA takes them: 1 plus how far a step along the direction moves the output.",
            root_figure(draw_significance(subspace)),
        ),
        ReportFigure(
            "How raw dimensions move the subspace",
            "Histogram of gradient norms between 0 and 1.",
            "0: a raw dimension that the subspace does not see; 1: one that lies wholly inside it.",
            root_figure(draw_gradient_norms(GradientNorms.from_dict(record["gradients"]))),
        ),
    )


def make_assumption_figures(record: Record) -> tuple[ReportFigure, ...]:
    """Draw how far the target features are from the Gaussian that alignment assumes."""
    if "normality" not in record:
        return ()
    return (
        ReportFigure(
            "Distance to a Gaussian",
            "Sorted distances of raw and projected dimensions to their own Gaussian, with the 5 % level.",
            "Of the target's features before adapting. The lower curve is the more Gaussian.",
            root_figure(draw_normality(NormalityReport.from_dict(record["normality"]))),
        ),
        ReportFigure(
            "Some dimensions beside their Gaussian",
            "Histograms of raw dimensions above and of projected ones below, each with a Gaussian curve.",
            "Of the target's features before adapting.",
            histogram_grid(FeatureHistograms.from_dict(record["histograms"])),
        ),
    )
