"""Page of the study in Markdown: candidates compared over all shifts, and R² by shift, from the file of runs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

RUNS, PAGE = "runs.jsonl", "no_normalisation.md"
SOURCE, FLOOR, NOTABLE = "Source", -1.0, 0.01
DEFAULTS = ", lr 0.001, k=100"  # of SSA
SEASON = "PM2.5, Nov–Mar to May–Sep"
GROUPS = {
    "MLPs of width 100": ("mlp",),
    "LSTM and GRU": ("lstm", "gru"),
    "CNN": ("cnn",),
    "MLPs of width 512": ("wide mlp",),
    "wider CNN": ("wide cnn",),
}

INTRODUCTION = """\
# What to adapt in models without normalisation layers

Written by `python -m benchmarks.no_normalisation` from `runs.jsonl`. SSA with different trainable parameters, on the
same {models} source models of each of {shifts} shifts, in one pass over the target in batches of 64 in random order. A
change is R² minus that of the source model. R² below −1 counts as −1, since such predictions are useless in any case.

* bias: all biases except the head's; extractor: everything except the head; first layer, last layer: weights and
  biases of the first layer, and of the last one before the head.
* k=100 is SSA's default. It is limited to the rank of the source features, and therefore the same as k=auto in all
  networks but the MLPs of width 512 on wine, whose rank exceeds 100.
* Largest harm: the lowest change, online or offline, of any shift, averaged over its source models; in brackets that of
  any single source model.
"""


@dataclass(frozen=True)
class Comparison:
    """Changes of R² of one candidate against the source model.

    Attributes:
        candidate: name of the candidate.
        online: mean change over all shifts, online.
        offline: the same, offline.
        harm: lowest change of any shift averaged over source models, online or offline.
        harmed: name of the shift with this change.
        single_harm: lowest change of any single source model.
        harmful: number of shifts whose mean change, online or offline, is below −0.01.
    """

    candidate: str
    online: float
    offline: float
    harm: float
    harmed: str
    single_harm: float
    harmful: int


class Scores:
    """R² of all runs by shift, candidate and seed.

    Args:
        records: the runs, as in the file.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._runs: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(dict)
        for record in records:
            spec = record["specification"]
            candidate = spec["candidate"].replace("k=auto", "k=100")  # the rank, of at most 100 features
            self._runs[spec["shift"], candidate][spec["seed"]] = record["result"]
        self.shifts = list(dict.fromkeys(shift for shift, _ in self._runs))
        self.candidates = [name for name in dict.fromkeys(name for _, name in self._runs) if name != SOURCE]

    def tried(self, shifts: Sequence[str]) -> list[str]:
        """Return the candidates with runs on all of ``shifts``."""
        return [name for name in self.candidates if all((shift, name) in self._runs for shift in shifts)]

    def group(self, title: str) -> list[str]:
        """Return the shifts of the networks of a group."""
        return [shift for shift in self.shifts if shift.partition(":")[0] in GROUPS[title]]

    def source_models(self, shift: str) -> int:
        """Return the number of source models of a shift."""
        return len(self._runs[shift, SOURCE])

    def mean(self, shift: str, candidate: str, field: str) -> float:
        """Return the mean of a field, such as ``"offline"``, over the source models."""
        return fmean(result[field] for result in self._runs[shift, candidate].values())

    def changes(self, shift: str, candidate: str, field: str) -> list[float]:
        """Return the changes of R², bounded below, against the source model, one per source model that has both."""
        source = self._runs[shift, SOURCE]
        return [
            max(result[field], FLOOR) - max(source[seed][field], FLOOR)
            for seed, result in self._runs[shift, candidate].items()
            if seed in source
        ]

    def compare(self, candidate: str, shifts: Sequence[str]) -> Comparison:
        """Return the changes of a candidate over ``shifts``."""
        changes = {
            (shift, field): self.changes(shift, candidate, field) for shift in shifts for field in ("online", "offline")
        }
        means = {place: fmean(values) for place, values in changes.items()}
        (harmed, _), harm = min(means.items(), key=lambda item: item[1])
        return Comparison(
            candidate,
            online=fmean(means[shift, "online"] for shift in shifts),
            offline=fmean(means[shift, "offline"] for shift in shifts),
            harm=harm,
            harmed=harmed,
            single_harm=min(min(values) for values in changes.values()),
            harmful=len({shift for (shift, _), value in means.items() if value < -NOTABLE}),
        )


def make_page(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the page for ``records``; runs that are not finished yet are left out."""
    scores = Scores(records)
    if not scores.candidates:
        return "# What to adapt in models without normalisation layers\n\nNo runs yet.\n"
    models = max(scores.source_models(shift) for shift in scores.shifts)
    parts = [INTRODUCTION.format(models=models, shifts=len(scores.shifts))]
    parts.append(f"## SSA's defaults: learning rate 1e-3, k=100\n\n{defaults_table(scores)}")
    parts.append(f"## R² by shift at SSA's defaults\n\n{shift_table(scores)}")
    compared = {"all shifts": scores.shifts, f"all shifts but {SEASON}": [s for s in scores.shifts if SEASON not in s]}
    for title, shifts in (compared | {title: scores.group(title) for title in GROUPS}).items():
        if shifts:
            parts.append(f"## Candidates compared: {title}\n\n{comparison_table(scores, shifts)}")
    return "\n".join(parts)


def defaults_table(scores: Scores) -> str:
    """Return one row per candidate at SSA's defaults: mean change offline and harms, by kind of network."""
    groups = {title: shifts for title in GROUPS if (shifts := scores.group(title))} | {"all": scores.shifts}
    titles = [f"{title} ({len(shifts)} shifts)" for title, shifts in groups.items()]
    lines = [f"| what is updated | {' | '.join(titles)} |", f"|---|{'---:|' * len(groups)}"]
    for name in _at_defaults(scores):
        cells = []
        for shifts in groups.values():
            found = scores.compare(name, shifts)
            harm = f"{_signed(found.harm)} ({_signed(found.single_harm)})"
            cells.append(f"{_signed(found.offline)}, {harm}, {found.harmful}")
        lines.append(f"| {name.removesuffix(DEFAULTS)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\nMean change offline, largest harm, and number of shifts harmed by more than 0.01.\n"


def _at_defaults(scores: Scores) -> list[str]:
    return [name for name in scores.tried(scores.shifts) if name.endswith(DEFAULTS)]


def comparison_table(scores: Scores, shifts: Sequence[str]) -> str:
    """Return one row per candidate, the smallest harm first."""
    found = sorted((scores.compare(name, shifts) for name in scores.tried(shifts)), key=lambda row: -row.harm)
    lines = [
        "| what is updated | mean change online | offline | largest harm | on | harmed by more than 0.01 |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for row in found:
        name = f"**{row.candidate}**" if row.candidate.endswith(DEFAULTS) else row.candidate
        harm = f"{_signed(row.harm)} ({_signed(row.single_harm)})"
        where = f"{row.harmful} of {len(shifts)}"
        lines.append(f"| {name} | {_signed(row.online)} | {_signed(row.offline)} | {harm} | {row.harmed} | {where} |")
    return "\n".join(lines) + "\n\nBold: the learning rate and k of SSA's defaults.\n"


def shift_table(scores: Scores) -> str:
    """Return R² by shift, online / offline, of the source model and of the candidates at SSA's defaults."""
    chosen = _at_defaults(scores)
    titles = [name.removesuffix(DEFAULTS) for name in chosen]
    lines = [f"| shift | validation | Source | {' | '.join(titles)} |", f"|---|{'---:|' * (len(chosen) + 2)}"]
    for shift in scores.shifts:
        cells = [_number(scores.mean(shift, SOURCE, "validation")), _number(scores.mean(shift, SOURCE, "offline"))]
        for name in chosen:
            online, offline = (scores.mean(shift, name, field) for field in ("online", "offline"))
            cells.append(f"{_number(online)} / {_number(offline)}")
        lines.append(f"| {shift} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\nMeans over the source models, online / offline, not bounded.\n"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _number(value: float) -> str:
    return (f"{value:.3f}" if abs(value) < 1000 else f"{value:.0e}").replace("-", "−")
