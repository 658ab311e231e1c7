"""Tables of the demo's scores, for the terminal and as Markdown."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich import box
from rich.table import Table

from regtta.experiments.demo.recipe import SOURCE
from regtta.experiments.demo.summary import SCORES, Study
from regtta.experiments.protocol import PROTOCOLS

_INDENT = "  "
_GAP = 2  # between columns: one of padding, one of the box
_EXPLAINED = (
    "Δ: less BN-adapt's with the same running statistics (BN-adapt debiased: less BN-adapt's), paired by "
    "source model. Online, debiasing changes nothing but a last batch of one."
)


@dataclass(frozen=True)
class Block:
    """Rows under one title, each a label and one cell per stream."""

    title: str
    rows: tuple[tuple[str, ...], ...]


def score_block(study: Study, protocol: str, score: str) -> Block:
    """Return one score of every method, as mean ±sd over the source models."""
    rows = [
        (
            arm.label,
            *(study.spread(scene, arm.name, protocol=protocol, score=score).text() for scene in study.recipe.scenes),
        )
        for arm in study.recipe.arms
    ]
    return Block(f"{SCORES[score]}, {protocol}", tuple(rows))


def difference_block(study: Study, protocol: str, score: str, against: str | None = None) -> Block:
    """Return one score of every method minus that of ``against`` or of its rival, paired by source model."""
    rows = []
    for arm in study.recipe.arms:
        other = against or arm.rival
        # Differences to Source are shown in another block.
        if other is None or other == arm.name or (against is None and other == SOURCE):
            continue
        gaps = [
            study.difference(scene, arm.name, other, protocol=protocol, score=score) for scene in study.recipe.scenes
        ]
        rows.append((arm.label, *(gap.text(signed=True) for gap in gaps)))
    whom = study.recipe.arm(against).label if against else "BN-adapt"
    return Block(f"{SCORES[score]}, {protocol}, less {whom}'s", tuple(rows))


def terminal_table(study: Study, width: int) -> Table:
    """Return a table of all offline scores, online R², and differences to the rivals, ``width`` characters wide.

    If ``mean ±sd`` does not fit on one line, the two are printed on two lines.
    """
    online = score_block(study, "online", "r2")
    # Online, a batch is normalised by its own statistics, so debiased running statistics make no difference.
    once = {arm.label for arm in study.recipe.arms if arm.method.schedule.batch_norm != "debiased"}
    blocks = (
        replace(score_block(study, "offline", "r2"), title="R² offline"),
        Block("R² online", tuple(row for row in online.rows if row[0] in once)),
        replace(difference_block(study, "offline", "r2"), title="Δ R² offline"),
        *(score_block(study, "offline", score) for score in SCORES if score != "r2"),
    )
    widest = max(len(cell) for block in blocks for row in block.rows for cell in row[1:])
    label = max(len(arm.label) for arm in study.recipe.arms) + len(_INDENT)
    fits = label + (widest + _GAP) * len(study.recipe.scenes) <= width
    return _filled(study, blocks, " " if fits else "\n")


def _filled(study: Study, blocks: Iterable[Block], between: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        pad_edge=False,
        title=f"{heading(study)}\n",
        title_justify="left",
        caption=_EXPLAINED,
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


def markdown(study: Study, words: tuple[str, ...]) -> str:
    """Return all scores in both protocols, differences to Source and to the rivals, and the summary sentences."""
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
    lines += [_EXPLAINED, ""]
    return "\n".join([*lines, *(f"- {sentence}" for sentence in words), ""])


def heading(study: Study) -> str:
    """Return the heading: the data, and the source models the scores are averaged over."""
    spread = "mean ±sd over " if len(study.seeds) > 1 else ""
    return f"regtta demo: UCI digits read as numbers, {spread}{study.sources()}"


def _head(study: Study, scene: str) -> str:
    degradation = study.recipe.degradations.get(scene)
    return scene if degradation is None else f"{scene}\n{degradation.setting}"


def _markdown_table(study: Study, block: Block) -> list[str]:
    heads = [_head(study, scene).replace("\n", " ") for scene in study.recipe.scenes]
    lines = [f"## {block.title}", "", f"| | {' | '.join(heads)} |", "|---" + "|---:" * len(heads) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in block.rows]
    return [*lines, ""]
