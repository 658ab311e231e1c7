"""Figure of the demo: a digit under each degradation, and the scores of each method on it."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regtta.experiments.demo.panels import SMALL, draw_digit, draw_gains, draw_scores, legend_handles
from regtta.experiments.demo.study import SourceModel
from regtta.experiments.demo.summary import Study

WIDTH, HEIGHT, DPI = 9.0, 7.6, 200  # inches; 1,800 pixels wide, twice what a README shows
_LEFT, _RIGHT = 0.085, 0.985


def draw(study: Study, example: SourceModel) -> Figure:
    """Draw the figure of a study, with a digit from the target of ``example`` for each stream.

    Does not use pyplot, whose global state belongs to the user.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    scenes = study.recipe.scenes
    top = figure.add_gridspec(1, len(scenes), left=_LEFT, right=_RIGHT, top=0.905, bottom=0.745, wspace=0)
    for column, scene in enumerate(scenes):
        draw_digit(figure.add_subplot(top[0, column]), study, example, scene)
    rows = figure.add_gridspec(
        2, 1, height_ratios=(3, 2), left=_LEFT, right=_RIGHT, top=0.735, bottom=0.165, hspace=0.16
    )
    draw_scores(figure.add_subplot(rows[0]), study)
    draw_gains(figure.add_subplot(rows[1]), study)
    _write_around(figure, study, len(example.target))
    return figure


def caption(study: Study, target: int) -> str:
    """Return the caption: data, counts, seeds, and the meaning of marks and bars."""
    recipe = study.recipe
    one = len(study.seeds) == 1
    bars = "Marks: its scores" if one else "Large marks: mean; bars: ±1 sd; small marks: single source models"
    return (
        f"UCI digits (32×32 pixels) read as numbers 0–9 by a small CNN; {study.sources()}, "
        f"trained on {recipe.source_digits} digits{'' if one else ' each'}.\n"
        f"Offline R² (no unit; 1 is perfect): one unlabelled pass over {target} target digits "
        f"in batches of {recipe.batch_size}, then scored on them.\n"
        f"{bars}; arrows: beyond the axis. "
        "ΔR²: paired, same running statistics.\n"
        "Hollow: BatchNorm's usual running statistics, which still hold some of the source; "
        "filled: debiased, which hold none."
    )


def _write_around(figure: Figure, study: Study, target: int) -> None:
    figure.text(
        _LEFT,
        0.985,
        "A scanner degrades: can a model that reads digits adapt, without labels?",
        fontsize=12.5,
        fontweight="bold",
        va="top",
    )
    handles = legend_handles(study)
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=((_LEFT + _RIGHT) / 2, 0.1),
        ncols=len(handles),
        frameon=False,
        fontsize=SMALL,
        handletextpad=0.1,
        columnspacing=0.9,
    )
    figure.text(_LEFT - 0.065, 0.012, caption(study, target), fontsize=SMALL, linespacing=1.35, color="#333333")
