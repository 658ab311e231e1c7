"""Captured and compiled execution of models with several inputs, structured outputs and heads over sequences."""

import pytest
import torch
from torch import nn

import regtta
from regtta.execution.modes import FAST, Execution
from regtta.models.model_inputs import ModelInputs

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
CAPTURED = Execution(capture=True)


class TwoInputs(nn.Module):
    """Regressor of a table and a sequence with a mask, which returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.sequence = nn.GRU(3, 12, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.mean = nn.Linear(24, 1)
        self.spread = nn.Linear(24, 1)

    def forward(self, table, sequence, mask=None, scale=1.0):
        states = self.norm(self.sequence(sequence)[0])
        states = states if mask is None else states * mask[..., None]
        z = torch.cat([self.table(table) * scale, states.mean(1)], dim=1)
        return {"mean": self.mean(z), "variance": nn.functional.softplus(self.spread(z))}


class EveryStep(nn.Module):
    """Sequence-to-sequence regressor."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence = nn.GRU(3, 12, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 1)

    def forward(self, sequence):
        return self.head(self.norm(self.sequence(sequence)[0]))


def batches(count, rows=24, *, shift=0.0, seed=0, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield {
            "table": (torch.randn(rows, 5, generator=generator) + shift).to(device),
            "sequence": (torch.randn(rows, 7, 3, generator=generator) * (1 + shift)).to(device),
            "mask": (torch.rand(rows, 7, generator=generator) > 0.2).float().to(device),
            "id": [str(number) for number in range(rows)],
        }


def run_stream(execution, device):
    torch.manual_seed(0)
    model = TwoInputs().eval().to(device)
    source = regtta.collect(model, batches(10, device=device))
    adapter = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=execution)
    return adapter, [adapter.adapt(batch) for batch in batches(8, shift=0.7, seed=1, device=device)]


def assert_close(found, expected, tolerance):
    for step, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(step.predictions, wanted.predictions, rtol=tolerance, atol=tolerance)
        assert step.adapted == wanted.adapted


@gpu
@pytest.mark.filterwarnings("ignore")  # warnings of torch.compile and its dependencies
@pytest.mark.parametrize(("execution", "tolerance"), [(CAPTURED, 1e-4), (FAST, 5e-2)])
def test_steps_on_dict_batches_match_eager_steps_on_a_gpu(execution, tolerance):
    plain, expected = run_stream(Execution(), "cuda")
    adapter, found = run_stream(execution, "cuda")
    assert_close(found, expected, tolerance)
    assert adapter._session.stream.learner._graphed.graphs == 1
    batch = next(batches(1, seed=5, device="cuda"))
    for _ in range(6):
        torch.testing.assert_close(adapter.predict(batch), plain.predict(batch), rtol=tolerance, atol=tolerance)


@gpu
def test_constant_arguments_are_part_of_a_captured_graph():
    torch.manual_seed(0)
    model = TwoInputs().eval().cuda()

    def select(batch):
        return (batch["table"], batch["sequence"]), {"scale": batch["scale"]}

    source = regtta.collect(model, ({**batch, "scale": 1.0} for batch in batches(10, device="cuda")), inputs=select)
    adapters = [
        regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, inputs=select, execution=execution)
        for execution in (Execution(), CAPTURED)
    ]
    for index, batch in enumerate(batches(16, shift=0.7, seed=1, device="cuda")):
        wanted, found = (adapter.adapt({**batch, "scale": 1.0 + index % 2}) for adapter in adapters)
        torch.testing.assert_close(found.predictions, wanted.predictions, rtol=1e-4, atol=1e-4)
    assert adapters[1]._session.stream.learner._graphed.graphs == 2


@gpu
def test_captured_steps_of_a_sequence_to_sequence_model():
    torch.manual_seed(0)
    model = EveryStep().eval().cuda()
    source = regtta.collect(model, torch.randn(100, 7, 3).cuda().split(20))
    assert source.head == "head[all]"
    adapters = [
        regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=execution)
        for execution in (Execution(), CAPTURED)
    ]
    for x in (torch.randn(160, 7, 3).cuda() * 2 + 1).split(20):
        wanted, found = (adapter.adapt(x) for adapter in adapters)
        torch.testing.assert_close(found.predictions, wanted.predictions, rtol=1e-4, atol=1e-4)
    assert adapters[1]._session.stream.learner._graphed.graphs == 1


def test_compiled_functions_receive_the_arguments_of_the_model(monkeypatch):
    seen = []

    def compiled(function, **_):
        def run(args, kwargs):
            seen.append((len(args), tuple(sorted(kwargs))))
            return function(args, kwargs)

        return run

    _, expected = run_stream(Execution(), "cpu")
    monkeypatch.setattr(torch, "compile", compiled)
    _, found = run_stream(Execution(compile=True), "cpu")
    assert_close(found, expected, 1e-6)
    assert set(seen) == {(0, ("mask", "sequence", "table"))}


def test_both_outputs_are_columns_of_the_predictions():
    adapter, steps = run_stream(Execution(), "cpu")
    assert adapter.head == "mean&spread"
    assert all(step.predictions.shape == (24, 2) and step.adapted for step in steps)
    batch = next(batches(1))
    returned = adapter.export()(batch["table"], batch["sequence"], batch["mask"])
    assert torch.equal(adapter.predict(batch), torch.cat([returned["mean"], returned["variance"]], dim=1))


def test_arguments_that_were_read_before_are_accepted():
    adapter, _ = run_stream(Execution(), "cpu")
    batch = next(batches(1))
    read = ModelInputs((batch["table"], batch["sequence"]), {"mask": batch["mask"]})
    assert torch.equal(adapter.predict(read), adapter.predict(batch))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_recurrent_layers_learn_and_keep_their_dropout(device):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(3)
            self.sequence = nn.LSTM(3, 12, num_layers=2, dropout=0.5, batch_first=True)
            self.head = nn.Linear(12, 1)

        def forward(self, x):
            return self.head(self.sequence(self.norm(x))[0][:, -1])

    torch.manual_seed(0)
    model = Recurrent().eval().to(device)
    source = regtta.collect(model, torch.randn(100, 7, 3).to(device).split(20))
    for trainable in ("affine", "extractor"):
        adapter = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2, trainable=trainable), source)
        x = torch.randn(20, 7, 3).to(device) * 2 + 1
        first = adapter.predict(x)
        step = adapter.adapt(x)
        assert step.adapted
        torch.testing.assert_close(step.predictions, first)  # without dropout
        assert not torch.equal(adapter.predict(x), first)
        exported = adapter.export()
        assert exported.sequence.dropout == 0.5
        assert not exported.sequence.training
