"""Summary of the demo's runs and its table."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rich import box
from rich.table import Table

from regtta.report.formatting import format_number
from regtta_bench.demo.demo_recipe import SOURCE, DemoRecipe
from regtta_bench.demo.demo_study import DemoRun
from regtta_bench.paper import PROTOCOLS

SCORES: Mapping[str, str] = {"r2": "R²", "rmse": "RMSE, digits", "mae": "MAE, digits"}

# Differences that the tables round to 0.000 count as none in the sentences.
NEGLIGIBLE = 5e-4


@dataclass(frozen=True)
class Spread:
    """One value per source model, in the order of their seeds; ``None`` where the run diverged.

    Example:
        >>> Spread((0.5, 0.75)).text(), Spread((0.5, None)).text(), Spread((-0.25,)).text()
        ('0.625 ±0.177', 'diverged 1/2', '−0.250')
    """

    values: tuple[float | None, ...]

    @property
    def diverged(self) -> int:
        """Number of source models whose run diverged."""
        return self.values.count(None)

    @property
    def finite(self) -> tuple[float, ...]:
        """Values of the runs that did not diverge."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Mean over all source models; ``None`` if any run diverged, because a mean must not hide that."""
        return None if self.diverged else statistics.fmean(self.finite)

    @property
    def sd(self) -> float | None:
        """Sample standard deviation; ``None`` for a single source model or if any run diverged."""
        return None if self.diverged or len(self.values) < 2 else statistics.stdev(self.finite)

    def text(self, *, signed: bool = False) -> str:
        """Format as ``mean ±sd``; ``signed`` adds a plus sign to positive means."""
        if self.mean is None:
            return f"diverged {self.diverged}/{len(self.values)}"
        spread = "" if self.sd is None else f" ±{self.sd:.3f}"
        return format_number(self.mean, signed=signed) + spread

    def direction(self) -> int | None:
        """Return the common sign of all source models: 1, −1, or 0 if all are below ``NEGLIGIBLE``, else ``None``.

        Also ``None`` if any run diverged.
        """
        sides = {0 if abs(value) < NEGLIGIBLE else int(math.copysign(1, value)) for value in self.finite}
        return sides.pop() if len(sides) == 1 and not self.diverged else None


@dataclass(frozen=True)
class DemoStudy:
    """All runs of one demo.

    Attributes:
        recipe: configuration of the demo.
        seeds: consecutive seeds of the source models.
        runs: runs of every method on every stream from every source model.
    """

    recipe: DemoRecipe
    seeds: tuple[int, ...]
    runs: tuple[DemoRun, ...]

    def sources(self) -> str:
        """Format the number of source models and their seeds."""
        first, last = self.seeds[0], self.seeds[-1]
        if first == last:
            return f"1 source model (seed {first})"
        return f"{len(self.seeds)} source models (seeds {first} to {last})"

    def spread(self, scene: str, method_name: str, *, protocol: str = "offline", score: str = "r2") -> Spread:
        """Return a score over the source models."""
        by_seed = {run.seed: run for run in self.runs if run.scene == scene and run.method_name == method_name}
        return Spread(tuple(_score(by_seed[seed], protocol, score) for seed in self.seeds))

    def difference(
        self, scene: str, method_name: str, against: str, *, protocol: str = "offline", score: str = "r2"
    ) -> Spread:
        """Return ``method_name - against``, paired by source model on the same stream."""
        own = self.spread(scene, method_name, protocol=protocol, score=score).values
        other = self.spread(scene, against, protocol=protocol, score=score).values
        pairs = zip(own, other, strict=True)
        return Spread(tuple(None if a is None or b is None else a - b for a, b in pairs))

    def mean_over(self, scenes: Iterable[str], method_name: str) -> float | None:
        """Return the mean offline R² over source models and ``scenes``; ``None`` if any run diverged."""
        means = [self.spread(scene, method_name).mean for scene in scenes]
        finite = [mean for mean in means if mean is not None]
        return statistics.fmean(finite) if finite and len(finite) == len(means) else None


def _score(run: DemoRun, protocol: str, score: str) -> float | None:
    found = run.outcome.scores[protocol][score]
    return None if run.outcome.diverged or found is None else float(found)


_INDENT = "  "
_GAP = 2  # between columns: one of padding, one of the box
_EXPLANATION = (
    "Δ: less BN-adapt's with the same running statistics (BN-adapt debiased: less BN-adapt's), paired by "
    "source model. Online, debiasing changes nothing but a last batch of one."
)


@dataclass(frozen=True)
class TableBlock:
    """Rows under one title, each a label and one cell per stream."""

    title: str
    rows: tuple[tuple[str, ...], ...]


def score_block(study: DemoStudy, protocol: str, score: str) -> TableBlock:
    """Return one score of every method, as mean ±sd over the source models."""
    rows = [
        (
            entry.label,
            *(study.spread(scene, entry.name, protocol=protocol, score=score).text() for scene in study.recipe.scenes),
        )
        for entry in study.recipe.methods
    ]
    return TableBlock(f"{SCORES[score]}, {protocol}", tuple(rows))


def difference_block(study: DemoStudy, protocol: str, score: str, against: str | None = None) -> TableBlock:
    """Return one score of every method minus that of ``against`` or of its baseline, paired by source model."""
    rows = []
    for entry in study.recipe.methods:
        other = against or entry.baseline
        # Differences to Source are shown in another block.
        if other is None or other == entry.name or (against is None and other == SOURCE):
            continue
        gaps = [
            study.difference(scene, entry.name, other, protocol=protocol, score=score) for scene in study.recipe.scenes
        ]
        rows.append((entry.label, *(gap.text(signed=True) for gap in gaps)))
    other_label = study.recipe.find_method(against).label if against else "BN-adapt"
    return TableBlock(f"{SCORES[score]}, {protocol}, less {other_label}'s", tuple(rows))


def terminal_table(study: DemoStudy, width: int) -> Table:
    """Return a table of all offline scores, online R², and differences to the baselines, ``width`` characters wide.

    If ``mean ±sd`` does not fit on one line, the two are printed on two lines.
    """
    online = score_block(study, "online", "r2")
    # Online, a batch is normalised by its own statistics, so debiased running statistics make no difference.
    once = {entry.label for entry in study.recipe.main_methods}
    blocks = (
        replace(score_block(study, "offline", "r2"), title="R² offline"),
        TableBlock("R² online", tuple(row for row in online.rows if row[0] in once)),
        replace(difference_block(study, "offline", "r2"), title="Δ R² offline"),
        *(score_block(study, "offline", score) for score in SCORES if score != "r2"),
    )
    widest = max(len(cell) for block in blocks for row in block.rows for cell in row[1:])
    label = max(len(entry.label) for entry in study.recipe.methods) + len(_INDENT)
    fits = label + (widest + _GAP) * len(study.recipe.scenes) <= width
    return _fill_table(study, blocks, " " if fits else "\n")


def _fill_table(study: DemoStudy, blocks: Iterable[TableBlock], between: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        pad_edge=False,
        title=f"{heading(study)}\n",
        title_justify="left",
        caption=_EXPLANATION,
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for scene in study.recipe.scenes:
        table.add_column(_head(study, scene), justify="right", no_wrap=True)
    for block in blocks:
        table.add_row(f"[bold]{block.title}[/bold]")
        for index, (label, *cells) in enumerate(block.rows):
            broken = [cell.replace(" ", between) for cell in cells]
            table.add_row(f"{_INDENT}{label}", *broken, end_section=index == len(block.rows) - 1)
    return table


def markdown(study: DemoStudy, words: tuple[str, ...]) -> str:
    """Return all scores in both protocols, differences to Source and to the baselines, and the summary sentences."""
    lines = [f"# {heading(study)}", ""]
    for protocol in PROTOCOLS:
        for score in SCORES:
            blocks = [
                score_block(study, protocol, score),
                difference_block(study, protocol, score, against=SOURCE),
                difference_block(study, protocol, score),
            ]
            for block in blocks:
                lines += _markdown_table(study, block)
    lines += [_EXPLANATION, ""]
    return "\n".join([*lines, *(f"- {sentence}" for sentence in words), ""])


def heading(study: DemoStudy) -> str:
    """Return the heading: the data, and the source models the scores are averaged over."""
    spread = "mean ±sd over " if len(study.seeds) > 1 else ""
    return f"regtta demo: UCI digits read as numbers, {spread}{study.sources()}"


def _head(study: DemoStudy, scene: str) -> str:
    degradation = study.recipe.degradations.get(scene)
    return scene if degradation is None else f"{scene}\n{degradation.setting}"


def _markdown_table(study: DemoStudy, block: TableBlock) -> list[str]:
    heads = [_head(study, scene).replace("\n", " ") for scene in study.recipe.scenes]
    lines = [f"## {block.title}", "", f"| | {' | '.join(heads)} |", "|---" + "|---:" * len(heads) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in block.rows]
    return [*lines, ""]
