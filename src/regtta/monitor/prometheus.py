"""Writer of signals in the Prometheus text format, for the textfile collector of node-exporter."""

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from regtta.files import refuse_existing, written_whole
from regtta.monitor.signals import Signals
from regtta.monitor.writers import News, Writer

_HELP = {
    "samples": "Samples in the last batch",
    "learned": "Whether the last batch was learned from",
    "loss": "Loss of the last batch",
    "displacement": "Relative distance of the parameters from where the stream began",
    "count": "Samples of equal weight behind the signals",
    "batches_since_helped": "Batches since adapting last brought the features nearer to the source",
    "risk": "Estimated probability of being worse than the source model",
    "shift_source": "Shift of the source model features, root mean square in source standard deviations",
    "shift_adapted": "Shift of the adapted model features, root mean square in source standard deviations",
    "beyond_chance": "Shift over what chance explains",
    "reweighting": "Least chi-square divergence of a change of the label mix that explains the shift",
    "steadiness": "Movement of outputs between blocks over what chance explains",
    "alignment_gain": "Misalignment of the source model less that of the adapted model",
    "disagreement": "Root mean square of adapted less source predictions, in source standard deviations",
    "shift_source_by_dimension": "Shift of the source model features by direction of the subspace",
    "shift_adapted_by_dimension": "Shift of the adapted model features by direction of the subspace",
    "output_mean_source": "Mean output of the source model of late, in source standard deviations",
    "output_mean_adapted": "Mean prediction of late, in source standard deviations",
    "output_deviation_source": "Standard deviation of the source model outputs of late over the source",
    "output_deviation_adapted": "Standard deviation of predictions of late over the source",
}


class PrometheusText(Writer):
    """Writer of the latest signals in the Prometheus text format; the file is replaced atomically.

    Args:
        path: path of the file, ending in ``.prom`` for node-exporter.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = refuse_existing(path, overwrite=True)
        self._raised: Counter[str] = Counter()

    def write(self, news: News) -> None:
        """Replace the file with the signals and alarms of one batch."""
        self._raised.update(event.alarm for event in news.events if event.kind == "raised")
        text = "".join([*_of_signals(news.signals), *self._of_alarms(news.active)])
        with written_whole(self._path) as draft:
            draft.write_text(text, encoding="utf-8")

    def _of_alarms(self, active: dict[str, bool]) -> Iterable[str]:
        now = [(f'{{alarm="{name}"}}', float(on)) for name, on in active.items()]
        yield _family("alarm_active", "gauge", "Whether the alarm is raised", now)
        raised = [(f'{{alarm="{name}"}}', float(self._raised[name])) for name in active]
        yield _family(
            "alarms_raised_total", "counter", "How often the alarm was raised since this process began", raised
        )


def _of_signals(signals: Signals) -> Iterable[str]:
    yield _family("batches_total", "counter", "Batches of the stream so far", [("", float(signals.index + 1))])
    for name, value in signals.numbers().items():
        yield _family(name, "gauge", _HELP[name], [("", value)])
    for name, values in signals.series().items():
        label = "dimension" if name.endswith("by_dimension") else "output"
        points = [(f'{{{label}="{number}"}}', value) for number, value in enumerate(values)]
        yield _family(name, "gauge", _HELP[name], points)


def _family(name: str, kind: str, text: str, points: list[tuple[str, float]]) -> str:
    """Return one metric with its HELP and TYPE lines; empty if it has no points."""
    if not points:
        return ""
    lines = [f"# HELP regtta_{name} {text}.", f"# TYPE regtta_{name} {kind}"]
    lines += [f"regtta_{name}{labels} {_number(value)}" for labels, value in points]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Return a float in the Prometheus text format, with NaN, +Inf and -Inf."""
    if math.isnan(value):
        return "NaN"
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value))
