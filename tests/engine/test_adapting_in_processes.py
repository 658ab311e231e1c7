"""Adapting in several processes gives the results of one process with all their samples."""

import os
import signal

import pytest
import torch

import regtta
from helpers import small_models
from helpers.attaching import Views, attach
from helpers.process_groups import run_in_processes
from regtta.errors import MismatchError, ProcessError, RegttaError
from regtta.guards import DEFAULT, SAFE, Gate, Guard, MarkGood, Rollback

METHODS = {
    "ssa": regtta.SSA(k=3, lr=1e-2),
    "ssa_debiased": regtta.SSA(k=3, lr=1e-2, batch_norm="debiased"),
    "ssa_blended_window": regtta.SSA(k=3, lr=1e-2, batch_norm="blended", window=32),
    "ssa_source": regtta.SSA(k=3, lr=1e-2, batch_norm="source"),
    "ssa_steps": regtta.SSA(k=3, lr=1e-2, steps=3),
    "ssa_sgd": regtta.SSA(k=3, lr=1e-3, optimizer="sgd"),
    "feature_alignment": regtta.FeatureAlignment(k=3, lr=1e-2),
    "rsd": regtta.RSD(k=3, lr=1e-3),
    "bn_adapt": regtta.BNAdapt(),
    "prototype": regtta.Prototype(),
    # Biases before BatchNorm have gradients of rounding error only, which Adam would scale up like any other.
    "extractor": regtta.SSA(k=3, lr=1e-3, trainable="extractor", optimizer="sgd"),
    "oracle": regtta.Oracle(lr=1e-2),
    "cwsa": regtta.CWSA(k=3, lr=1e-2),
    "psc": regtta.PSC(k=3, lr=1e-2),
    "dare_gram": regtta.DareGram(lr=1e-2),
    "recentre": regtta.Recentre(),
    "recolour": regtta.Recolour(),
    "recalibrate_once": regtta.RecalibrateOnce(samples=40),
}


def make_stream(kind="mlp"):
    """Return a float64 model, its statistics, and a shifted stream whose last batch is smaller."""
    torch.manual_seed(0)
    model = (small_models.mlp() if kind == "mlp" else small_models.cnn()).double()
    shape = (5,) if kind == "mlp" else (3, 16, 16)
    with torch.no_grad():
        model.train()
        for _ in range(20):
            model(torch.randn(32, *shape, dtype=torch.float64))
        model.eval()
    source = regtta.collect(model, torch.randn(200, *shape, dtype=torch.float64).split(40))
    stream = (torch.randn(90, *shape, dtype=torch.float64) * 1.5 + 0.7).split(24)  # the last batch has 18 samples
    return model, source, stream


def run_stream(adapter, stream, shard):
    """Return the predictions and diagnostics of this process over a sharded stream, and the final weights."""
    found = []
    for x in stream:
        mine = shard(x)
        targets = mine.flatten(1).mean(dim=1, keepdim=True) if adapter.method.takes_targets else None
        step = adapter.adapt(mine, targets)
        info = step.diagnostics
        found.append((step.predictions, info.loss, info.gradient_norm, info.displacement, info.verdict.reason))
    return found, adapter.export().state_dict()


def sharding(sizes):
    """Return a function that selects the rows of a rank: ``sizes`` are fractions of a batch, the last gets the rest."""

    def shard(x, rank):
        edges = [round(sum(sizes[:r]) * len(x)) for r in range(len(sizes))] + [len(x)]
        return x[edges[rank] : edges[rank + 1]]

    return shard


def _run_methods(group, kind, names, sizes):
    model, source, stream = make_stream(kind)
    shard = sharding(sizes)
    return {
        name: run_stream(
            regtta.Adapter(model, METHODS[name], source, process_group=group), stream, lambda x: shard(x, group.rank())
        )
        for name in names
    }


def assert_matches_single_process(found, expected, *, rtol=1e-9):
    """Check that the concatenated results of the processes are those of a single process."""
    expected_steps, weights = expected
    for number, (predictions, *numbers) in enumerate(expected_steps):
        joined = torch.cat([steps[number][0] for steps, _ in found])
        torch.testing.assert_close(joined, predictions, rtol=rtol, atol=1e-9, equal_nan=True)
        for steps, _ in found:
            for got, want in zip(steps[number][1:], numbers, strict=True):
                assert got == (
                    want if isinstance(want, str) or want is None else pytest.approx(want, rel=1e-7, abs=1e-9)
                )
    for _, theirs in found:
        for name, value in weights.items():
            torch.testing.assert_close(theirs[name], value, rtol=rtol, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("mlp", [0.5, 0.5]), ("mlp", [0.1, 0.4, 0.2, 0.3]), ("mlp", [0.0, 0.7, 0.3]), ("cnn", [0.75, 0.25])],
)
def test_sharded_batches_match_a_single_process(tmp_path, kind, sizes):
    names = list(METHODS) if kind == "mlp" else ["ssa", "ssa_blended_window", "bn_adapt", "extractor"]
    results = run_in_processes(len(sizes), _run_methods, tmp_path, kind, names, sizes)
    model, source, stream = make_stream(kind)
    for name in names:
        single = run_stream(regtta.Adapter(model, METHODS[name], source), stream, lambda x: x)
        assert_matches_single_process([theirs[name] for theirs in results], single)
        assert any(step[4] == "" for step in single[0]), f"{name} learns nothing here"


def _run_on_gpu(group):
    model, source, stream = make_stream("cnn")
    adapter = regtta.Adapter(model.cuda(), METHODS["ssa"], source, process_group=group)
    shard = sharding([0.75, 0.25])
    steps, weights = run_stream(adapter, stream, lambda x: shard(x, group.rank()))
    return [(step[0].cpu(), *step[1:]) for step in steps], {name: value.cpu() for name, value in weights.items()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_sharded_batches_match_a_single_process_on_a_gpu(tmp_path):
    model, source, stream = make_stream("cnn")
    single = run_stream(regtta.Adapter(model, METHODS["ssa"], source), stream, lambda x: x)
    assert_matches_single_process(run_in_processes(2, _run_on_gpu, tmp_path), single, rtol=1e-6)


def _run_with_guards(group):
    model, source, stream = make_stream()
    shard = sharding([0.5, 0.5])
    bad = [x.clone() for x in stream]
    bad[1][-1, 0] = torch.nan  # in the last process only
    same = [torch.ones_like(stream[0])]
    alike = [
        torch.cat([torch.ones(12, 5), 2 * torch.ones(12, 5)]).double()
    ]  # the samples of each process are identical
    calm = torch.randn(128, 5, dtype=torch.float64).split(32)
    tiny = [stream[0][:1]]
    streams = {"bad": bad, "same": same, "alike": alike, "calm": calm, "tiny": tiny}
    return {
        (name, guards): run_stream(
            regtta.Adapter(
                model,
                regtta.SSA(k=3),
                source,
                guards={"default": (*DEFAULT, Gate()), "safe": SAFE}[guards],
                process_group=group,
            ),
            batches,
            (lambda x: shard(x, group.rank())) if group else (lambda x: x),
        )
        for name, batches in streams.items()
        for guards in ("default", "safe")
    }


def test_guards_decide_the_same_in_every_process(tmp_path):
    results, single = run_in_processes(2, _run_with_guards, tmp_path), _run_with_guards(None)
    for which, expected in single.items():
        assert_matches_single_process([theirs[which] for theirs in results], expected)
    reasons = {which: [step[4] for step in steps] for which, (steps, _) in single.items()}
    assert reasons["bad", "default"][1] == ""  # the non-finite sample is excluded, whichever process holds it
    assert reasons["same", "default"] == ["all samples are the same"]
    assert reasons["alike", "default"] != ["all samples are the same"]
    assert reasons["calm", "default"][-1] == "no shift"
    assert reasons["tiny", "default"] == ["a batch of 1 has no variance"]


def _run_with_bad_samples(group):
    model, source, stream = make_stream()
    adapters = [
        regtta.Adapter(model, METHODS["ssa"], source, guards=guards, process_group=group) for guards in (DEFAULT, SAFE)
    ]
    found, shard = [], sharding([0.75, 0.25])
    for number, batch in enumerate(stream):
        x = batch.clone()
        x[number % 7, 1] = torch.nan  # in the first process
        x[-1 - number % 3, 2] = 1e7  # in the last
        mine = shard(x, group.rank()) if group else x
        first = 0 if not group or group.rank() == 0 else len(x) - len(mine)
        for adapter in adapters:
            step = adapter.adapt(mine)
            rows = [row + first for row in step.excluded_rows]
            found.append((rows, step.predictions, step.diagnostics.loss, step.diagnostics.verdict.reason))
    return found


def test_excluded_samples_do_not_depend_on_the_process_that_holds_them(tmp_path):
    results, single = run_in_processes(2, _run_with_bad_samples, tmp_path), _run_with_bad_samples(None)
    for number, (rows, predictions, loss, reason) in enumerate(single):
        shards = [theirs[number] for theirs in results]
        assert [row for result in shards for row in result[0]] == rows
        assert len(rows) == 2
        torch.testing.assert_close(torch.cat([result[1] for result in shards]), predictions, equal_nan=True)
        for result in shards:
            assert result[2] == pytest.approx(loss)
            assert result[3] == reason


def _create_with_different_models(group):
    model, source, _ = make_stream()
    with torch.no_grad():
        model[0].weight += group.rank()
    try:
        regtta.Adapter(model, regtta.SSA(k=3), source, allow_mismatch=True, process_group=group)
    except MismatchError as error:
        return str(error)
    return "went on"


def test_processes_with_different_models_are_rejected(tmp_path):
    for found in run_in_processes(2, _create_with_different_models, tmp_path):
        assert found == "Process 1 has a different model from process 0. Pass the same model to all processes."


def _run_with_empty_shard(group):
    """Head detection, resuming from a state, views, and predicting in one process only."""
    model, source, stream = make_stream()
    shard = sharding([0.0, 1.0])
    adapter = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, process_group=group)
    found = regtta.Adapter(model, regtta.Prototype(), process_group=group)
    found.adapt(shard(stream[0], group.rank()))
    for x in stream[:2]:
        adapter.adapt(shard(x, group.rank()))
    state = adapter.state_dict()
    after = [adapter.adapt(shard(x, group.rank())).predictions for x in stream[2:]]
    again = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, process_group=group)
    again.load_state_dict(state)
    resumed = [again.adapt(shard(x, group.rank())).predictions for x in stream[2:]]
    views = attach(Views(), adapter).views
    adapter.adapt(shard(stream[0], group.rank()))
    predicted = adapter.predict(stream[0]) if group.rank() == 0 else None
    return found.head, after, resumed, views[0].source.outputs, predicted


def test_head_detection_resuming_and_views_with_an_empty_shard(tmp_path):
    results = run_in_processes(2, _run_with_empty_shard, tmp_path)
    model, _, stream = make_stream()
    for head, after, resumed, source_outputs, _ in results:
        assert head == "6"
        assert all(torch.equal(a, b) for a, b in zip(after, resumed, strict=True))
        with torch.no_grad():
            torch.testing.assert_close(source_outputs, model(stream[0]))
    assert results[0][4].shape == (24, 1)


def _one_dies(group):
    model, source, stream = make_stream()
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source, process_group=group)
    before = None
    try:
        for number, x in enumerate(stream * 20):
            if number == 3 and group.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            before = adapter.state_dict()["learner"]["tensors"]
            adapter.adapt(x[:10])
    except ProcessError as error:
        after = adapter.state_dict()["learner"]["tensors"]
        return str(error), number, all(torch.equal(before[name], after[name]) for name in before)
    return "went on"


def test_a_killed_process_ends_the_stream_and_leaves_the_others_unchanged(tmp_path):
    survivor, dead = run_in_processes(2, _one_dies, tmp_path)
    assert dead is None
    message, number, intact = survivor
    assert message.startswith("Another process of the group has ended or does not answer")
    assert number == 3
    assert intact


def _one_raises(group, what):
    model, source, stream = make_stream()
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source, process_group=group)
    adapter.adapt(stream[0])
    x = stream[0]
    if group.rank() == 1:
        x = x[:, :2] if what == "shape" else x
        if what == "model":
            adapter.model[0].forward = lambda _: 1 / 0
    errors = []
    for _ in range(2):
        try:
            adapter.adapt(x)
        except (RegttaError, ZeroDivisionError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors


def test_an_error_in_one_process_is_raised_in_all(tmp_path):
    first, second = run_in_processes(2, _one_raises, tmp_path, "model")
    assert first[0].startswith("ProcessError: Another process of the group has ended")
    assert second[0].startswith("ZeroDivisionError")
    for errors in (first, second):
        assert errors[1].startswith("ProcessError: This process failed during an earlier collective operation")


def test_samples_of_a_different_shape_are_rejected_in_every_process(tmp_path):
    for errors in run_in_processes(2, _one_raises, tmp_path, "shape"):
        assert errors[0].startswith("MismatchError: Process 1 has samples of a different shape or dtype from process 0")


class RankSpecificGuard(Guard):
    """Gives rulings that differ between processes."""

    def __init__(self, rank, rulings):
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "rulings", iter(rulings))

    def after_step(self, outcome):
        return next(self.rulings)


def _run_with_rank_specific_guards(group):
    model, source, stream = make_stream()
    rulings_by_rank = {
        0: [None, MarkGood(), "first", None, None],
        1: ["second", None, Rollback("third", "good"), Rollback("fourth", "good"), None],
    }
    guards = (*DEFAULT, RankSpecificGuard(group.rank(), rulings_by_rank[group.rank()]))
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source, guards=guards, process_group=group)
    verdicts = [adapter.adapt(x[:10]).diagnostics.verdict for x in (stream * 2)[:5]]
    return [(verdict.reason, verdict.returned) for verdict in verdicts]


def test_a_step_rejected_in_one_process_is_rejected_in_all(tmp_path):
    for found in run_in_processes(2, _run_with_rank_specific_guards, tmp_path):
        assert found == [("second", ""), ("", ""), ("first", ""), ("fourth", "good"), ("", "")]
