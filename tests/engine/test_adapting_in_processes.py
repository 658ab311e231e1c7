"""Several processes that adapt together follow one process that has all their samples."""

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
    # Biases before BatchNorm have no gradient but rounding, which Adam would make as large as any other.
    "extractor": regtta.SSA(k=3, lr=1e-3, trainable="extractor", optimizer="sgd"),
    "oracle": regtta.Oracle(lr=1e-2),
}


def scene(kind="mlp"):
    """A float64 model, its statistics, and a shifted stream with an uneven end."""
    torch.manual_seed(0)
    model = (small_models.mlp() if kind == "mlp" else small_models.cnn()).double()
    shape = (5,) if kind == "mlp" else (3, 16, 16)
    with torch.no_grad():
        model.train()
        for _ in range(20):
            model(torch.randn(32, *shape, dtype=torch.float64))
        model.eval()
    source = regtta.collect(model, torch.randn(200, *shape, dtype=torch.float64).split(40))
    stream = (torch.randn(90, *shape, dtype=torch.float64) * 1.5 + 0.7).split(24)  # the last has 18
    return model, source, stream


def followed(adapter, stream, share):
    """Predictions, losses, displacement and verdicts over a stream of which this process has a share."""
    found = []
    for x in stream:
        mine = share(x)
        targets = mine.flatten(1).mean(dim=1, keepdim=True) if adapter.method.takes_targets else None
        step = adapter.adapt(mine, targets)
        told = step.diagnostics
        found.append((step.predictions, told.loss, told.gradient_norm, told.displacement, told.verdict.reason))
    return found, adapter.export().state_dict()


def dealt(sizes):
    """Gives a process its rows: ``sizes`` are shares of a batch, the last gets the rest."""

    def share(x, rank):
        edges = [round(sum(sizes[:r]) * len(x)) for r in range(len(sizes))] + [len(x)]
        return x[edges[rank] : edges[rank + 1]]

    return share


def _streams(group, kind, names, sizes):
    model, source, stream = scene(kind)
    share = dealt(sizes)
    return {
        name: followed(
            regtta.Adapter(model, METHODS[name], source, process_group=group), stream, lambda x: share(x, group.rank())
        )
        for name in names
    }


def assert_follows(found, expected, *, rtol=1e-9):
    """What the processes found, put together, is what one found."""
    whole, weights = expected
    for number, (predictions, *numbers) in enumerate(whole):
        together = torch.cat([steps[number][0] for steps, _ in found])
        torch.testing.assert_close(together, predictions, rtol=rtol, atol=1e-9, equal_nan=True)
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
def test_shares_of_a_batch_are_learned_from_as_the_whole(tmp_path, kind, sizes):
    names = list(METHODS) if kind == "mlp" else ["ssa", "ssa_blended_window", "bn_adapt", "extractor"]
    results = run_in_processes(len(sizes), _streams, tmp_path, kind, names, sizes)
    model, source, stream = scene(kind)
    for name in names:
        alone = followed(regtta.Adapter(model, METHODS[name], source), stream, lambda x: x)
        assert_follows([theirs[name] for theirs in results], alone)
        assert any(told[4] == "" for told in alone[0]), f"{name} learns nothing here"


def _on_a_gpu(group):
    model, source, stream = scene("cnn")
    adapter = regtta.Adapter(model.cuda(), METHODS["ssa"], source, process_group=group)
    share = dealt([0.75, 0.25])
    steps, weights = followed(adapter, stream, lambda x: share(x, group.rank()))
    return [(step[0].cpu(), *step[1:]) for step in steps], {name: value.cpu() for name, value in weights.items()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_models_on_a_gpu_share_batches_too(tmp_path):
    model, source, stream = scene("cnn")
    alone = followed(regtta.Adapter(model, METHODS["ssa"], source), stream, lambda x: x)
    assert_follows(run_in_processes(2, _on_a_gpu, tmp_path), alone, rtol=1e-6)


def _guarded(group):
    model, source, stream = scene()
    share = dealt([0.5, 0.5])
    bad = [x.clone() for x in stream]
    bad[1][-1, 0] = torch.nan  # in the last process alone
    same = [torch.ones_like(stream[0])]
    alike = [torch.cat([torch.ones(12, 5), 2 * torch.ones(12, 5)]).double()]  # no process sees two that differ
    calm = torch.randn(128, 5, dtype=torch.float64).split(32)
    tiny = [stream[0][:1]]
    streams = {"bad": bad, "same": same, "alike": alike, "calm": calm, "tiny": tiny}
    return {
        (name, guards): followed(
            regtta.Adapter(
                model,
                regtta.SSA(k=3),
                source,
                guards={"default": (*DEFAULT, Gate()), "safe": SAFE}[guards],
                process_group=group,
            ),
            batches,
            (lambda x: share(x, group.rank())) if group else (lambda x: x),
        )
        for name, batches in streams.items()
        for guards in ("default", "safe")
    }


def test_guards_rule_alike_everywhere(tmp_path):
    results, alone = run_in_processes(2, _guarded, tmp_path), _guarded(None)
    for which, expected in alone.items():
        assert_follows([theirs[which] for theirs in results], expected)
    reasons = {which: [told[4] for told in steps] for which, (steps, _) in alone.items()}
    assert reasons["bad", "default"][1] == ""  # the sample that is not finite is left out, in whichever process it lies
    assert reasons["same", "default"] == ["all samples are the same"]
    assert reasons["alike", "default"] != ["all samples are the same"]
    assert reasons["calm", "default"][-1] == "no shift"
    assert reasons["tiny", "default"] == ["a batch of 1 has no variance"]


def _left_out(group):
    model, source, stream = scene()
    adapters = [
        regtta.Adapter(model, METHODS["ssa"], source, guards=guards, process_group=group) for guards in (DEFAULT, SAFE)
    ]
    found, share = [], dealt([0.75, 0.25])
    for number, batch in enumerate(stream):
        x = batch.clone()
        x[number % 7, 1] = torch.nan  # in the first process
        x[-1 - number % 3, 2] = 1e7  # in the last
        mine = share(x, group.rank()) if group else x
        first = 0 if not group or group.rank() == 0 else len(x) - len(mine)
        for adapter in adapters:
            step = adapter.adapt(mine)
            rows = [row + first for row in step.excluded_rows]
            found.append((rows, step.predictions, step.diagnostics.loss, step.diagnostics.verdict.reason))
    return found


def test_samples_are_left_out_alike_wherever_they_lie(tmp_path):
    results, alone = run_in_processes(2, _left_out, tmp_path), _left_out(None)
    for number, (rows, predictions, loss, reason) in enumerate(alone):
        parts = [theirs[number] for theirs in results]
        assert [row for part in parts for row in part[0]] == rows
        assert len(rows) == 2
        torch.testing.assert_close(torch.cat([part[1] for part in parts]), predictions, equal_nan=True)
        for part in parts:
            assert part[2] == pytest.approx(loss)
            assert part[3] == reason


def _other_models(group):
    model, source, _ = scene()
    with torch.no_grad():
        model[0].weight += group.rank()
    try:
        regtta.Adapter(model, regtta.SSA(k=3), source, allow_mismatch=True, process_group=group)
    except MismatchError as error:
        return str(error)
    return "went on"


def test_processes_with_different_models_are_refused(tmp_path):
    for found in run_in_processes(2, _other_models, tmp_path):
        assert found == "Process 1 has a different model from process 0. Pass the same model to all processes."


def _rest_of_it(group):
    """What needs no company: heads found by one, predicting alone, going on from a state, a process of its own view."""
    model, source, stream = scene()
    share = dealt([0.0, 1.0])
    adapter = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, process_group=group)
    found = regtta.Adapter(model, regtta.Prototype(), process_group=group)
    found.adapt(share(stream[0], group.rank()))
    for x in stream[:2]:
        adapter.adapt(share(x, group.rank()))
    state = adapter.state_dict()
    after = [adapter.adapt(share(x, group.rank())).predictions for x in stream[2:]]
    again = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, process_group=group)
    again.load_state_dict(state)
    resumed = [again.adapt(share(x, group.rank())).predictions for x in stream[2:]]
    views = attach(Views(), adapter).views
    adapter.adapt(share(stream[0], group.rank()))
    lonely = adapter.predict(stream[0]) if group.rank() == 0 else None
    return found.head, after, resumed, views[0].source.outputs, lonely


def test_heads_states_and_sights_are_shared(tmp_path):
    results = run_in_processes(2, _rest_of_it, tmp_path)
    model, _, stream = scene()
    for head, after, resumed, seen, _ in results:
        assert head == "6"
        assert all(torch.equal(a, b) for a, b in zip(after, resumed, strict=True))
        with torch.no_grad():
            torch.testing.assert_close(seen, model(stream[0]))
    assert results[0][4].shape == (24, 1)


def _one_dies(group):
    model, source, stream = scene()
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


def test_a_process_that_dies_ends_the_stream_and_leaves_the_others_as_they_were(tmp_path):
    left, dead = run_in_processes(2, _one_dies, tmp_path)
    assert dead is None
    message, number, intact = left
    assert message.startswith("Another process of the group has ended or does not answer")
    assert number == 3
    assert intact


def _one_raises(group, what):
    model, source, stream = scene()
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source, process_group=group)
    adapter.adapt(stream[0])
    x = stream[0]
    if group.rank() == 1:
        x = x[:, :2] if what == "shape" else x
        if what == "model":
            adapter.model[0].forward = lambda _: 1 / 0
    told = []
    for _ in range(2):
        try:
            adapter.adapt(x)
        except (RegttaError, ZeroDivisionError) as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


def test_an_error_in_one_process_is_told_in_all(tmp_path):
    first, second = run_in_processes(2, _one_raises, tmp_path, "model")
    assert first[0].startswith("ProcessError: Another process of the group has ended")
    assert second[0].startswith("ZeroDivisionError")
    for told in (first, second):
        assert told[1].startswith("ProcessError: This process failed during an earlier collective operation")


def test_samples_of_another_shape_are_refused_everywhere(tmp_path):
    for told in run_in_processes(2, _one_raises, tmp_path, "shape"):
        assert told[0].startswith("MismatchError: Process 1 has samples of a different shape or dtype from process 0")


class OwnEyes(Guard):
    """Rules by what lies in one process alone."""

    def __init__(self, rank, rulings):
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "rulings", iter(rulings))

    def after_step(self, outcome):
        return next(self.rulings)


def _own_eyes(group):
    model, source, stream = scene()
    said = {
        0: [None, MarkGood(), "first", None, None],
        1: ["second", None, Rollback("third", "good"), Rollback("fourth", "good"), None],
    }
    guards = (*DEFAULT, OwnEyes(group.rank(), said[group.rank()]))
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source, guards=guards, process_group=group)
    verdicts = [adapter.adapt(x[:10]).diagnostics.verdict for x in (stream * 2)[:5]]
    return [(verdict.reason, verdict.returned) for verdict in verdicts]


def test_what_one_process_refuses_all_refuse(tmp_path):
    for found in run_in_processes(2, _own_eyes, tmp_path):
        assert found == [("second", ""), ("", ""), ("first", ""), ("fourth", "good"), ("", "")]
