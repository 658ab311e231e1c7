import json
import math
import re
import sys

import pytest

import regtta
from helpers import monitored_stream
from helpers.attaching import attach
from regtta.errors import FileError, MissingExtraError, MissingFileError
from regtta.monitoring import SCALARS, Event, JsonLines, MonitorReport, OutputShift, PrometheusText, TensorBoard
from regtta.monitoring.writers import _HELP

RAISED = Event("raised", "ShiftAlarm", 3, "it shifted", "Do something.")
REPORT = MonitorReport(monitored_stream.signals(3), [RAISED], {"ShiftAlarm": True, "RiskAlarm": False})


def test_json_lines_are_appended_one_object_per_line(tmp_path):
    path = tmp_path / "signals.jsonl"
    path.write_text('{"type": "older"}\n')
    writer = JsonLines(path)
    writer.write(REPORT)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["older", "signals", "event"]
    assert lines[2] == {"type": "event", **RAISED.to_dict()}
    signals = lines[1]
    assert (signals["index"], signals["samples"], signals["learned"], signals["reason"]) == (3, 32, True, "")
    assert signals["shift_source_by_dimension"] == [0.0, 0.0]
    assert set(SCALARS) <= signals.keys()
    path.rename(tmp_path / "rotated.jsonl")
    writer.write(REPORT)
    assert len(path.read_text().splitlines()) == 2


def test_non_finite_numbers_are_not_written_as_json(tmp_path):
    odd = monitored_stream.evidence(disagreement=math.inf, outputs_adapted=OutputShift((math.nan,), (math.inf,)))
    writer = JsonLines(tmp_path / "s.jsonl")
    writer.write(MonitorReport(monitored_stream.signals(loss=math.nan, evidence=odd), [], {}))
    writer.write(MonitorReport(monitored_stream.signals(loss=None, evidence=None, risk=None), [], {}))
    first, second = (json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines())
    assert "loss" not in first
    assert "disagreement" not in first
    assert first["output_mean_adapted"] == [None]
    assert not {"shift_source", "risk", "loss"} & second.keys()


def test_invalid_paths_raise_at_once(tmp_path):
    for writer in (JsonLines, PrometheusText):
        with pytest.raises(MissingFileError, match="no folder"):
            writer(tmp_path / "nowhere" / "file")
    with pytest.raises(FileError, match="Could not write"):
        JsonLines(tmp_path)


# The Prometheus text format: comment lines, or a name, labels in braces, and a float.
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(\{{[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*"\}})? (\S+)')


def parsed(text):
    """Return samples by name and labels, after checking every rule of the format."""
    assert text.endswith("\n")
    kinds, helps, found, closed, current = {}, set(), {}, set(), None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helps
            helps.add(name)
            current = name
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("gauge", "counter")
            assert name == current
            assert name not in kinds
            kinds[name] = kind
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name == current, "the lines of a metric come in one group"
            assert name not in closed
            assert (name, labels) not in found
            assert value in ("NaN", "+Inf", "-Inf") or math.isfinite(float(value))
            assert (kinds[name] == "counter") == name.endswith("_total")
            found[name, labels or ""] = float(value)
    assert kinds.keys() == helps
    return found


def test_prometheus_text_is_valid_and_contains_every_signal(tmp_path):
    path = tmp_path / "regtta.prom"
    writer = PrometheusText(path)
    writer.write(REPORT)
    writer.write(REPORT)
    found = parsed(path.read_text())
    assert {f"regtta_{name}" for name in SCALARS} <= {name for name, _ in found}
    assert found["regtta_alarm_active", '{alarm="ShiftAlarm"}'] == 1
    assert found["regtta_alarm_active", '{alarm="RiskAlarm"}'] == 0
    assert found["regtta_alarms_raised_total", '{alarm="ShiftAlarm"}'] == 2
    assert found["regtta_batches_total", ""] == 4
    assert found["regtta_risk", ""] == 0.2
    assert found["regtta_shift_source_by_dimension", '{dimension="1"}'] == 0.0
    assert found["regtta_output_mean_source", '{output="0"}'] == 0.0
    assert [item.name for item in tmp_path.iterdir()] == ["regtta.prom"]


def test_prometheus_text_of_non_finite_values(tmp_path):
    odd = monitored_stream.evidence(outputs_adapted=OutputShift((math.nan, -math.inf), (math.inf, 1.0)))
    PrometheusText(tmp_path / "p.prom").write(MonitorReport(monitored_stream.signals(evidence=odd), [], {}))
    found = parsed((tmp_path / "p.prom").read_text())
    assert found["regtta_output_deviation_adapted", '{output="0"}'] == math.inf
    assert found["regtta_output_mean_adapted", '{output="1"}'] == -math.inf


def test_every_signal_has_a_help_text():
    assert set(_HELP) == {*SCALARS, *monitored_stream.signals().series()}
    assert tuple(monitored_stream.signals().scalars()) == SCALARS


def test_tensorboard_events_can_be_read_back(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = TensorBoard(tmp_path / "runs")
    for index in range(3):
        writer.write(MonitorReport(monitored_stream.signals(index, risk=index / 4), [RAISED] if index == 1 else [], {}))
    writer.close()
    events = EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    assert [(point.step, point.value) for point in events.Scalars("regtta/risk")] == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert {f"regtta/{name}" for name in SCALARS} == set(events.Tags()["scalars"])
    assert "regtta/shift_source_by_dimension" in events.Tags()["histograms"]
    assert b"it shifted" in events.Tensors("regtta/ShiftAlarm/text_summary")[0].tensor_proto.string_val[0]


def test_missing_tensorboard_raises_with_the_package_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r'pip install "regtta\[monitor\]"'):
        TensorBoard(tmp_path)


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_no_user_data_is_written(tmp_path, caplog, kind):
    """Search all written bytes for marked inputs, labels and names, also with batches of one sample."""
    folder = tmp_path / "logs"
    folder.mkdir()
    adapter = monitored_stream.adapter(regtta.SSA(k=4), inputs="x" if kind == "dict" else None)
    writers = [JsonLines(folder / "s.jsonl"), PrometheusText(folder / "s.prom"), TensorBoard(folder / "tb")]
    answers = []
    with caplog.at_level("DEBUG"), attach(regtta.Monitor(writers=writers), adapter) as monitor:
        for x in [*monitored_stream.stream(40, size=1), *monitored_stream.stream(20, shift=1.0)]:
            marked = x.clone()
            marked[0, 0] = 12345.678
            batch = {"x": marked, "id": "jane-doe-4711", "y": 98765.4321}
            step = monitor.adapter.adapt(batch if kind == "dict" else tuple(batch.values()))
            answers += step.predictions.flatten().tolist()
    assert monitor.raised
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()) + caplog.text.encode()
    assert len(written) > 10_000
    for secret in ("12345.6", "98765.4", "jane-doe", "doe-4711", str(tmp_path)):
        assert secret.encode() not in written, secret
    signals = json.dumps([json.loads(line) for line in (folder / "s.jsonl").read_text().splitlines()])
    numbers = {float(text) for text in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", signals)}
    assert not any(math.isclose(answer, number, rel_tol=1e-9) for answer in set(answers) for number in numbers)
