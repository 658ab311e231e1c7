"""Measurement of a mixture with labels that come late."""

import pytest
import torch
from sklearn.metrics import r2_score

import regtta
from benchmarks.feedback import FeedbackRun, main, run_feedback, table_header, table_row, train_mlp
from regtta_bench.data import Domain


@pytest.fixture(scope="module")
def shifted():
    """Return a trained model, its statistics, and a target whose inputs have drifted."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(900, 4, generator=generator)
    targets = (inputs[:, :1] + inputs[:, 1:2] ** 2) / 2
    train, target = Domain(inputs[:500], targets[:500]), Domain(inputs[500:] * 1.5 + 2, targets[500:])
    model = train_mlp(train, seed=0, epochs=20)
    return model, regtta.collect(model, train.inputs.split(100)), target


@pytest.mark.parametrize("delay", [0, 40, 350])
def test_scores_are_those_of_both_models_and_the_mixture_is_near_the_better_one(shifted, delay):
    model, statistics, target = shifted
    found = run_feedback(model, statistics, target, regtta.BNAdapt(), delay=delay, batch_size=32)
    adapter = regtta.Adapter(model, regtta.BNAdapt(), statistics)
    online = torch.cat([adapter.adapt(batch).predictions for batch in target.inputs.split(32)])
    with torch.no_grad():
        assert found.source == pytest.approx(r2_score(target.targets, model(target.inputs)), rel=1e-4)
    assert found.adapted == pytest.approx(r2_score(target.targets, online), rel=1e-4)
    assert found.adapted > found.source + 0.5
    assert found.weight > 0.9
    assert found.later > -0.02
    assert found.difference == pytest.approx(found.mixture - found.adapted)


def test_more_delay_costs_the_samples_before_the_first_label(shifted):
    model, statistics, target = shifted
    runs = [run_feedback(model, statistics, target, regtta.BNAdapt(), delay=delay) for delay in (0, 300)]
    assert runs[0].mixture > runs[1].mixture


def test_the_table_has_a_line_for_each_method_and_a_column_for_each_delay():
    runs = [FeedbackRun(-0.5, 0.5, 0.49, 0.0001, 1.0), FeedbackRun(-0.5, 0.5, 0.47, -0.002, 0.9)]
    lines = [*table_header((0, 64)).splitlines(), table_row("wine", "ssa", 1599, runs)]
    assert [line.count("|") for line in lines] == [10, 10, 10]
    assert lines[2] == "| wine | ssa | 1,599 | −0.500 | 0.500 | −0.010 | −0.030 | 0.000 | −0.002 |"


def test_a_name_that_no_shift_contains_prints_the_header_alone(capsys, tmp_path):
    main(["--data", str(tmp_path), "--only", "no such shift", "--delays", "5"])
    assert capsys.readouterr().out.strip() == table_header([5])
