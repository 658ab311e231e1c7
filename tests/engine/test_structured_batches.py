"""Every method, the guards and the callbacks on models with several inputs and on sequence-to-sequence models."""

import json

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.process_groups import run_in_processes
from helpers.states import assert_same
from regtta.errors import BatchError, RegttaError
from regtta.guards import DEFAULT, SAFE, RepairableShift
from regtta.report.recorder import RunRecorder

NEEDS_ONE_TENSOR = ("variance_minimization", "ttt", "consistency")
NEEDS_BATCH_NORM = ("bn_adapt", "recalibrate_once")
NEEDS_SEVERAL_OUTPUTS = ("tent",)
OPTIONS = {"ssa": {"k": 4}, "rsd": {"k": 3}, "variance_minimization": {"views": 4}}


class TableAndText(nn.Module):
    """Regressor of a table and token ids with a mask, which returns a dict."""

    def __init__(self, outputs=1):
        super().__init__()
        self.table = nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.tokens = nn.Embedding(20, 12)
        self.norm = nn.LayerNorm(12)
        self.fc = nn.Linear(24, outputs)

    def forward(self, table, ids, mask):
        mask = mask.unsqueeze(-1).to(table.dtype)
        text = self.norm((self.tokens(ids) * mask).sum(dim=1) / mask.sum(dim=1))
        return {"loss": None, "logits": self.fc(torch.cat([self.table(table), text], dim=1))}


class EveryStep(nn.Module):
    """Sequence-to-sequence regressor."""

    def __init__(self, outputs=1):
        super().__init__()
        self.rnn = nn.GRU(3, 12, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, outputs)

    def forward(self, series):
        return self.head(self.norm(self.rnn(series)[0]))


def draw(rows, *, shift=0.0, seed=0, dtype=torch.float32, length=6):
    """Return a dict batch; the labels and the names are not inputs of the model."""
    generator = torch.Generator().manual_seed(seed)
    low, high = (0, 12) if not shift else (6, 20)
    return {
        "ids": torch.randint(low, high, (rows, length), generator=generator),
        "mask": torch.arange(length) < torch.randint(2, length + 1, (rows, 1), generator=generator),
        "table": (torch.randn(rows, 5, generator=generator) * (1 + shift) + shift).to(dtype),
        "labels": torch.rand(rows, 1, generator=generator),
        "name": [f"row {row}" for row in range(rows)],
    }


def make_model(outputs=1, dtype=torch.float32):
    torch.manual_seed(0)
    model = TableAndText(outputs).to(dtype).train()
    with torch.no_grad():
        for seed in range(30):
            batch = draw(64, seed=seed, dtype=dtype)
            model(batch["table"], batch["ids"], batch["mask"])
    return model.eval()


def source_batches(dtype=torch.float32):
    return [draw(40, seed=seed, dtype=dtype) for seed in range(5)]


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def source(model):
    return regtta.collect(model, source_batches())


def method_and_statistics(name, model):
    method = regtta.create_method(name, **OPTIONS.get(name, {}))
    collected = regtta.TTT(branch=nn.Linear(24, 4)) if name == "ttt" else method
    return method, regtta.collect(model, source_batches(), methods=[collected])


@pytest.mark.parametrize("name", regtta.METHODS)
def test_every_method_adapts_dict_batches_or_says_what_it_needs(name):
    model = make_model(outputs=3 if name in NEEDS_SEVERAL_OUTPUTS else 1)
    before = small_models.model_snapshot(model)
    method, source = method_and_statistics(name, model)
    accepting = (RepairableShift(level=0.9, tolerance=0.0, least=2),) if method.selective else ()
    adapter = regtta.Adapter(model, method, source, guards=(*DEFAULT, *accepting))
    batches = [draw(24, shift=1.0, seed=seed) for seed in range(4)]
    targets = [batch["labels"] if method.takes_targets else None for batch in batches]
    if name in NEEDS_ONE_TENSOR:
        with pytest.raises(BatchError, match=rf"{name} transforms images.*take one tensor; this model takes 3.*SSA"):
            adapter.adapt(batches[0])
        return
    steps = [adapter.adapt(batch, target) for batch, target in zip(batches, targets, strict=True)]
    small_models.assert_unchanged(before, model)
    assert all(step.predictions.isfinite().all() for step in steps)
    assert [step.adapted for step in steps] == [name != "source"] * 4, [step.reason for step in steps]
    changed = not torch.equal(adapter.predict(batches[0]), regtta.Adapter(model, "source").predict(batches[0]))
    assert changed == (name != "source")


@pytest.mark.parametrize("name", [name for name in regtta.METHODS if name not in NEEDS_BATCH_NORM])
def test_every_method_adapts_a_sequence_to_sequence_model_or_says_what_it_needs(name):
    torch.manual_seed(0)
    model = EveryStep(outputs=3 if name in NEEDS_SEVERAL_OUTPUTS else 1).eval()
    method = regtta.create_method(name, **OPTIONS.get(name, {}))
    collected = regtta.TTT(branch=nn.Linear(12, 4)) if name == "ttt" else method
    source = regtta.collect(model, torch.randn(200, 7, 3).split(40), methods=[collected])
    adapter = regtta.Adapter(model, method, source)
    batches = (torch.randn(4 * 24, 7, 3) * 2 + 1).split(24)
    targets = torch.rand(24, 7, 1) if method.takes_targets else None
    if name in NEEDS_ONE_TENSOR:
        with pytest.raises(BatchError, match="images"):
            adapter.adapt(batches[0])
        return
    steps = [adapter.adapt(batch, targets) for batch in batches]
    assert all(step.predictions.isfinite().all() and step.predictions.shape[:2] == (24, 7) for step in steps)
    assert [step.adapted for step in steps] == [name != "source"] * 4, [step.reason for step in steps]


@pytest.mark.parametrize("guards", [DEFAULT, SAFE], ids=["default", "safe"])
def test_a_row_with_nan_in_one_of_the_tensors_is_predicted_and_excluded(model, source, guards):
    def run(spoiled):
        adapter = regtta.Adapter(model, regtta.SSA(k=4, lr=1e-2), source, guards=guards)
        steps = []
        for seed in range(14):
            batch = draw(64, shift=1.0, seed=seed)
            if spoiled:
                bad = draw(1, shift=1.0, seed=99)
                bad["table"][0, 2] = torch.nan
                batch = {
                    name: torch.cat([batch[name][:7], bad[name], batch[name][7:]])
                    for name in ("table", "ids", "mask", "labels")
                }
            steps.append(adapter.adapt(batch))
        return adapter, steps

    (clean, expected), (adapter, found) = run(False), run(True)
    assert any(step.adapted for step in found)
    for step, wanted in zip(found, expected, strict=True):
        assert step.excluded_rows == (7,)
        assert step.adapted == wanted.adapted
        kept = torch.arange(65) != 7
        assert torch.equal(step.predictions[kept], wanted.predictions)
        assert step.predictions[7].isnan().all()
    assert_same(adapter.export().state_dict(), clean.export().state_dict())


def test_a_row_with_nan_at_a_head_over_positions():
    """The position of a sample is found by comparison with the output, which is NaN."""

    class LastValid(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = nn.LayerNorm(3), nn.Linear(3, 1)

        def forward(self, series, lengths):
            return self.head(self.norm(series))[torch.arange(series.shape[0]), lengths - 1]

    torch.manual_seed(0)
    model = LastValid().eval()
    batches = [(torch.randn(24, 6, 3) + 1, torch.randint(1, 7, (24,))) for _ in range(4)]
    source = regtta.collect(model, batches)
    assert source.head == "head[matched]"
    adapter = regtta.Adapter(model, regtta.SSA(k=2), source)
    series, lengths = batches[0][0] * 3, batches[0][1]
    series[5] = torch.nan
    step = adapter.adapt((series, lengths))
    assert step.adapted
    assert step.excluded_rows == (5,)
    assert adapter.features((series, lengths)).shape == (24, 3)


def test_a_sample_far_outside_the_source_is_excluded(model, source):
    adapter = regtta.Adapter(model, regtta.SSA(k=4), source, guards=SAFE)
    batch = draw(32, shift=1.0)
    batch["table"][3, 1] = 1e7
    step = adapter.adapt(batch)
    assert step.excluded_rows == (3,)


@pytest.mark.parametrize("guards", [DEFAULT, SAFE], ids=["default", "safe"])
def test_batches_that_cannot_be_learned_from(model, source, guards):
    adapter = regtta.Adapter(model, regtta.SSA(k=4), source, guards=guards)
    one = draw(1, shift=1.0)
    same = {name: value.expand(16, -1) for name, value in one.items() if name in ("table", "ids", "mask")}
    for batch in (one, same):
        step = adapter.adapt(batch)
        assert not step.adapted
        assert step.reason
        assert step.predictions.isfinite().all()
    # Samples that differ in their integers only are not all the same.
    ids = draw(16, shift=1.0, seed=5)["ids"]
    assert "same" not in regtta.Adapter(model, regtta.SSA(k=4), source).adapt({**same, "ids": ids}).reason


def test_statistics_loaded_from_a_file_and_a_state_resume_the_stream(model, source, tmp_path):
    source.save(tmp_path / "source.safetensors")
    first = regtta.Adapter(model, regtta.SSA(k=4), tmp_path / "source.safetensors", guards=SAFE)
    for seed in range(3):
        first.adapt(draw(24, shift=1.0, seed=seed))
    second = regtta.Adapter(model, regtta.SSA(k=4), tmp_path / "source.safetensors", guards=SAFE)
    second.load_state_dict(first.state_dict())
    steps = [adapter.adapt(draw(24, shift=1.0, seed=9)) for adapter in (first, second)]
    assert torch.equal(steps[0].predictions, steps[1].predictions)
    assert_same(first.state_dict(), second.state_dict())


def test_sequences_of_another_length_in_every_batch(model):
    """Batches are padded to their own longest sequence."""
    source = regtta.collect(model, [draw(40, seed=seed, length=4 + seed) for seed in range(5)])
    adapter = regtta.Adapter(model, regtta.SSA(k=4), source, guards=SAFE)
    steps = [adapter.adapt(draw(24, shift=1.0, seed=seed, length=3 + seed)) for seed in range(5)]
    assert steps[-1].predictions.shape == (24, 1)
    series = [torch.randn(30, length, 3) for length in (5, 7, 5, 9)]
    torch.manual_seed(0)
    steps_model = EveryStep().eval()
    adapter = regtta.Adapter(steps_model, regtta.SSA(k=4), regtta.collect(steps_model, series), guards=SAFE)
    for length in (9, 4, 6):
        assert adapter.adapt(torch.randn(20, length, 3) * 2 + 1).predictions.shape == (20, length, 1)


@pytest.mark.parametrize("kind", ["dict", "sequence"])
def test_the_monitor_and_the_recorder_follow_structured_streams(kind, tmp_path):
    torch.manual_seed(0)
    if kind == "dict":
        model, batches = make_model(), [draw(64, shift=1.0, seed=seed) for seed in range(14)]
        source = regtta.collect(model, source_batches())
    else:
        model = EveryStep().eval()
        source = regtta.collect(model, torch.randn(200, 7, 3).split(40))
        batches = list((torch.randn(14 * 64, 7, 3) * 0.3 + 2).split(64))
    monitor, recorder = regtta.Monitor(), RunRecorder(model)
    adapter = regtta.Adapter(model, regtta.SSA(k=4, lr=1e-2), source, guards=SAFE, callbacks=[monitor, recorder])
    steps = list(adapter.run(batches))
    assert all(step.predictions.isfinite().all() for step in steps)
    assert any(step.adapted for step in steps)
    adapter.close()
    record = recorder.record({}, online=False)
    json.dumps(record)
    assert monitor.signals.evidence is not None
    assert 0 <= monitor.signals.risk <= 1


def test_a_sequence_to_sequence_stream_is_rolled_back_and_resumed(tmp_path):
    torch.manual_seed(0)
    model = EveryStep().eval()
    source = regtta.collect(model, torch.randn(200, 7, 3).split(40))
    assert source.head == "head[all]"
    assert source.count == 200 * 7
    batches = list((torch.randn(6 * 24, 7, 3) * 2 + 1).split(24))
    batches[2] = batches[2].clone()
    batches[2][5, 3, 0] = torch.nan
    adapter = regtta.Adapter(model, regtta.SSA(k=4, lr=1e-2), source, guards=SAFE)
    first = adapter.predict(batches[0])
    steps = list(adapter.run(batches))
    assert steps[2].excluded_rows == (5,)
    assert adapter.features(batches[0]).shape == (24, 7, 12)
    other = regtta.Adapter(model, regtta.SSA(k=4, lr=1e-2), source, guards=SAFE)
    other.load_state_dict(adapter.state_dict())
    assert torch.equal(other.predict(batches[0]), adapter.predict(batches[0]))
    adapter.reset()
    assert torch.equal(adapter.predict(batches[0]), first)


def _run_shards(group, guards):
    model = make_model(dtype=torch.float64)
    batches = source_batches(torch.float64)
    own = batches if group is None else batches[group.rank() :: 2]
    source = regtta.collect(model, own, process_group=group)
    adapter = regtta.Adapter(
        model, regtta.SSA(k=3, lr=1e-2), source, guards=SAFE if guards == "safe" else DEFAULT, process_group=group
    )
    found = []
    for seed in range(12):
        batch = draw(64, shift=1.0, seed=seed, dtype=torch.float64)
        if seed == 1:
            batch["table"][50, 0] = torch.nan
        rows = slice(None) if group is None else [slice(0, 45), slice(45, 64)][group.rank()]
        step = adapter.adapt({name: batch[name][rows] for name in ("table", "ids", "mask")})
        found.append((step.predictions, step.loss, step.adapted, step.reason))
    return found, adapter.export().state_dict()


@pytest.mark.parametrize("guards", ["default", "safe"])
def test_two_processes_with_dict_batches_match_one(tmp_path, guards):
    found, (expected, weights) = run_in_processes(2, _run_shards, tmp_path, guards), _run_shards(None, guards)
    assert any(adapted for _, _, adapted, _ in expected)
    for index, (predictions, loss, adapted, reason) in enumerate(expected):
        joined = torch.cat([steps[index][0] for steps, _ in found])
        torch.testing.assert_close(joined, predictions, rtol=1e-9, atol=1e-9, equal_nan=True)
        for steps, _ in found:
            assert steps[index][2:] == (adapted, reason)
            assert steps[index][1] == (None if loss is None else pytest.approx(loss, rel=1e-7, abs=1e-9))
    for _, theirs in found:
        for name, value in weights.items():
            torch.testing.assert_close(theirs[name], value, rtol=1e-9, atol=1e-9)


def test_a_batch_without_a_required_tensor_names_what_is_missing(model, source):
    adapter = regtta.Adapter(model, regtta.SSA(k=4), source)
    batch = draw(8)
    with pytest.raises(RegttaError, match=r"parameters of TableAndText.forward: \['table', 'ids', 'mask'\]"):
        adapter.adapt({"table": batch["table"], "labels": batch["labels"]})
    with pytest.raises(RegttaError, match=r"needs \['table', 'ids', 'mask'\]"):
        adapter.adapt(batch["table"])
