import json
import logging
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regtta
from regtta.errors import BatchError, ModelError, OptionError, StatisticsError
from regtta.selection import CorrectedModel, OutputCorrection

SHIFTED, SAME = 3.0, 1.0  # gain and offset of the sensors on the target; SAME leaves it like the source


def make_model(outputs: int = 1, last: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs)]
    model = nn.Sequential(*layers, *([] if last is None else [last]))
    for batch in torch.randn(4000, 4).split(50):  # sets the running statistics
        model(batch)
    return model.eval()


def make_target(model: nn.Module, gain: float, count: int = 400, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return inputs of sensors with another gain and offset, and the labels of what they measure."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(count, 4, generator=generator)
    with torch.no_grad():
        clean = model(true)
    noise = 0.1 * torch.randn(clean.shape, generator=generator)
    return gain * true + (gain - 1), clean + noise


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    return make_model()


@pytest.fixture(scope="module")
def source(model: nn.Sequential) -> regtta.SourceStatistics:
    return regtta.collect(model, torch.randn(1000, 4, generator=torch.Generator().manual_seed(2)).split(100))


def test_a_method_that_repairs_the_shift_is_recommended(model, source):
    x, y = make_target(model, SHIFTED)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = regtta.select(None, model, source, x[:48], y[:48], stream=x[48:].split(64))
    assert result.recommended != "source"
    row = next(row for row in result.rows if row.name == result.recommended)
    assert row.helps
    assert row.r2 > result.rows[0].r2
    assert (result.labels, result.stream) == (48, 352)
    assert result.method == result.methods[result.recommended]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_without_a_shift_nothing_is_recommended(model, source):
    x, y = make_target(model, SAME)
    result = regtta.select(["bn_adapt", "ssa"], model, source, x[:64], y[:64], stream=x[64:].split(64))
    assert result.recommended == "source"
    assert result.reason.startswith("No candidate is shown to help")


def test_predictions_of_the_recommended_adapter_are_the_scored_ones(model, source):
    x, y = make_target(model, SHIFTED)
    stream = x[48:].split(64)
    result = regtta.select(["ssa:k=4,lr=1e-2"], model, source, x[:48], y[:48], stream=stream)
    assert result.recommended == "ssa:k=4,lr=1e-2"
    adapter = result.adapter()
    assert adapter.method == regtta.SSA(k=4, lr=1e-2)
    list(adapter.run(stream))
    predictions = adapter.predict(x[:48])
    assert float((predictions - y[:48]).square().mean().sqrt()) == pytest.approx(result.rows[1].rmse, rel=1e-5)
    exported = result.export()
    assert not exported.training
    torch.testing.assert_close(exported(x[:48]), predictions)


def test_labels_do_not_change_what_the_candidates_learn(model, source):
    x, y = make_target(model, SHIFTED)
    result = regtta.select(["ssa"], model, source, x[:48], -y[:48], stream=x[48:].split(64))
    adapter = regtta.Adapter(model, "ssa", source)
    list(adapter.run(x[48:].split(64)))
    error = (adapter.predict(x[:48]) + y[:48]).double()
    expected = 1 - error.square().sum() / (y[:48].double() - y[:48].double().mean()).square().sum()
    assert result.rows[1].r2 == pytest.approx(float(expected), rel=1e-5)


def test_without_a_stream_the_labelled_inputs_are_adapted_to(model, source):
    x, y = make_target(model, SHIFTED, count=100)
    result = regtta.select(["bn_adapt:batch_norm=debiased"], model, source, x, y, batch_size=25)
    assert result.stream == 100
    adapter = regtta.Adapter(model, regtta.BNAdapt(batch_norm="debiased"), source)
    list(adapter.run(x.split(25)))
    torch.testing.assert_close(result.export()(x), adapter.predict(x))


def test_a_stream_may_be_a_tensor_an_iterator_or_batches_with_labels(model, source):
    x, y = make_target(model, SHIFTED)
    streams = [x[48:], iter(x[48:].split(64)), list(zip(x[48:].split(64), y[48:].split(64), strict=True))]
    rows = [regtta.select(["bn_adapt"], model, source, x[:48], y[:48], stream=stream).rows for stream in streams]
    assert rows[0] == rows[1] == rows[2]


def test_labels_may_be_numpy_or_one_dimensional(model, source):
    x, y = make_target(model, SHIFTED, count=64)
    rows = [regtta.select(["bn_adapt"], model, source, x, labels).rows for labels in (y, y[:, 0], y.numpy()[:, 0])]
    assert rows[0] == rows[1] == rows[2]


def test_models_of_several_inputs_and_outputs():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_model(outputs=2)

        def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
            return {"mean": self.net(torch.cat([left, right], dim=1)), "extra": left.new_zeros(len(left), 5)}

    two = Two().eval()
    x, _ = make_target(two.net, SHIFTED)
    with torch.no_grad():
        y = two.net((x - 2) / 3) * 2 + torch.tensor([5.0, 500.0])
    batch = {"left": x[:, :1], "right": x[:, 1:]}
    labelled = {name: value[:128] for name, value in batch.items()}
    stream = [{name: value[128:] for name, value in batch.items()}]
    result = regtta.select(
        {"bn": "bn_adapt:batch_norm=debiased"}, two, None, labelled, y[:128], stream=stream, output="mean",
        correct="affine",
    )  # fmt: skip
    # Only together with the correction is the adaptation better: the labels have another scale and offset.
    assert result.recommended == "bn + affine"
    assert not next(row for row in result.rows if row.name == "bn").helps
    assert result.correction is not None
    assert result.correction.scale == pytest.approx((2.0, 2.0), rel=0.2)
    predictions = result.adapter().predict(labelled)
    assert result.correct(predictions).shape == (128, 2)
    exported = result.export()
    torch.testing.assert_close(
        exported(**labelled), result.correct(result.deployment.adapter.predict(labelled)), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("selection", [0, lambda batch: ((batch[0],), {})])
def test_selected_inputs_are_read_once(model, source, selection):
    x, y = make_target(model, SHIFTED)
    stream = list(zip(x[48:].split(64), y[48:].split(64), strict=True))
    plain = regtta.select(["bn_adapt"], model, source, x[:48], y[:48], stream=stream)
    given = regtta.select(["bn_adapt"], model, source, (x[:48], y[:48]), y[:48], stream=stream, inputs=selection)
    assert given.rows == plain.rows


# --- the correction ----------------------------------------------------------------------------------


def test_an_offset_of_the_labels_is_corrected_in_the_head(model, source):
    x, y = make_target(model, SAME)
    result = regtta.select(["bn_adapt"], model, source, x[:64], y[:64] + 7, correct="offset")
    assert result.recommended == "source + offset"
    assert result.method == regtta.NoAdaptation()
    assert result.correction is not None
    assert result.correction.offset[0] == pytest.approx(7, rel=0.02)
    exported = result.export()
    assert isinstance(exported, nn.Sequential)
    torch.testing.assert_close(exported(x), result.correct(result.deployment.adapter.predict(x)), rtol=1e-4, atol=1e-4)
    assert str(result).splitlines()[-1].startswith("corrected prediction = ")


def test_outputs_that_the_head_does_not_give_are_corrected_by_a_wrapper():
    bounded = make_model(last=nn.Tanh())
    x, y = make_target(bounded, SAME)
    result = regtta.select(["bn_adapt"], bounded, None, x[:64], 3 * y[:64] + 7, correct="affine", head="3")
    exported = result.export()
    assert isinstance(exported, CorrectedModel)
    torch.testing.assert_close(exported(x), result.correct(result.deployment.adapter.predict(x)))


def test_a_correction_that_does_not_help_is_not_recommended(model, source):
    x, y = make_target(model, SAME)
    result = regtta.select(["bn_adapt"], model, source, x[:32], y[:32], correct="affine")
    assert [row.name for row in result.rows] == ["source", "bn_adapt", "source + affine", "bn_adapt + affine"]
    assert result.recommended == "source"
    predictions = torch.randn(5, 1)
    assert torch.equal(result.correct(predictions), predictions)
    torch.testing.assert_close(result.export()(x), model(x))


# --- the result --------------------------------------------------------------------------------------


def test_the_result_as_json_and_as_text(model, source, tmp_path: Path):
    x, y = make_target(model, SHIFTED)
    file = tmp_path / "source.safetensors"
    source.save(file)
    result = regtta.select(["bn_adapt", "ssa"], model, file, x[:32], y[:32], stream=x[32:], correct="affine")
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert set(found) == {
        "recommended", "reason", "labels", "stream", "loss", "confidence", "candidates", "skipped",
    }  # fmt: skip
    assert set(found["candidates"][0]) == {
        "name", "candidate", "method", "correction", "rmse", "mae", "r2", "gain", "low", "high", "p_value",
        "correction_low", "adaptation_low", "decision",
    }  # fmt: skip
    assert set(found["candidates"][3]["correction"]) == {"offset", "scale"}
    assert found["candidates"][2]["method"]["type"] == "SSA"
    lines = str(result).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["candidate", "source", "bn_adapt", "ssa"]
    (marked,) = [line for line in lines if line.endswith("← recommended")]
    assert marked.startswith(f"{result.recommended} ")
    assert result.reason in lines


def test_default_candidates_that_do_not_fit_are_left_out_and_named():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(64, 4)
    statistics = regtta.collect(plain, x.split(16))
    result = regtta.select(None, plain, statistics, x, plain(x).detach() + torch.randn(64, 1))
    assert "bn_adapt" in result.skipped
    assert "bn_adapt was left out: Sequential has no BatchNorm layer" in str(result)
    assert "bn_adapt" not in result.methods
    with pytest.raises(ModelError, match="no BatchNorm layer"):
        regtta.select(["bn_adapt"], plain, statistics, x, plain(x).detach())


def test_candidates_without_statistics_are_left_out_by_default_and_an_error_by_name(model):
    x, y = make_target(model, SHIFTED, count=64)
    result = regtta.select(None, model, None, x, y)
    assert {"ssa", "ssa:lr=0.01,batch_norm=source,k=auto"} <= set(result.skipped)
    with pytest.raises(StatisticsError):
        regtta.select(["ssa"], model, None, x, y)


# --- errors and warnings -----------------------------------------------------------------------------


def replace_row(values: Tensor, row: int) -> Tensor:
    changed = values.clone()
    changed[row] = math.nan
    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x[:7], y[:7]), "at least 8 labelled samples, found 7"),
        (lambda x, y: (x, torch.ones_like(y)), "labels that vary, found a constant in output 0"),
        (lambda x, y: (x, replace_row(y, 3)), "finite labels, found others in rows 3"),
        (lambda x, y: (replace_row(x, 5), y), "predictions of rows 5 are not finite"),
        (lambda x, y: (x, y[:-1]), "found 32 samples in x and 31 rows"),
        (lambda x, y: (x, torch.cat([y, y], dim=1)), r"predictions of shape \(32, 1\) and labels of shape \(32, 2\)"),
        (lambda x, y: (x, y[:, :, None]), r"labels of shape \(n,\) or \(n, O\)"),
    ],
)
def test_labelled_samples_that_cannot_be_used_are_errors(
    model, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], words
):
    x, y = change(*make_target(model, SHIFTED, count=32))
    with pytest.raises(BatchError, match=words):
        regtta.select(["bn_adapt"], model, None, x, y)


@pytest.mark.parametrize("stream", [[], {"x": torch.zeros(4, 4)}, 3])
def test_streams_that_cannot_be_read_are_errors(model, stream):
    x, y = make_target(model, SHIFTED, count=32)
    with pytest.raises(BatchError, match="stream"):
        regtta.select(["bn_adapt"], model, None, x, y, stream=stream)


@pytest.mark.parametrize("options", [{"loss": "cubic"}, {"correct": True}, {"confidence": 1}, {"batch_size": 0}])
def test_wrong_options_are_errors(model, options):
    x, y = make_target(model, SHIFTED, count=32)
    with pytest.raises(OptionError):
        regtta.select(["bn_adapt"], model, None, x, y, **options)


def test_labels_in_another_unit_are_a_warning(model, source, caplog):
    x, y = make_target(model, SAME, count=64)
    with caplog.at_level(logging.WARNING, logger="regtta"):
        regtta.select(["bn_adapt"], model, source, x, y)
        assert not caplog.records
        regtta.select(["bn_adapt"], model, source, x, 1000 * (y + 5))
    assert "the same unit" in caplog.text


def test_a_correction_stores_plain_numbers():
    values = OutputCorrection((0.1,), (1.1,))
    assert values.apply(torch.ones(2, dtype=torch.float64)).tolist() == pytest.approx([1.2, 1.2], rel=1e-15)
    assert np.allclose(values.apply(torch.ones(2)).numpy(), 1.2)
