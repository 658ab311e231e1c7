"""Files written by version 0.1.0 can be loaded and resumed, and give the predictions of 0.1.0."""

import pytest
import torch
from safetensors.torch import load_file

import regtta
from golden.streams import FOLDER, STREAMS
from helpers.attaching import attach
from regtta.persistence.state_files import read_state

RESUMABLE = [name for name in STREAMS if name != "cnn_ssa_adam_extractor"]


def load_following(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    stored = load_file(FOLDER / f"{name}_following.safetensors")
    return stored["batches"], stored["predictions"]


def assert_continues(name: str, adapter: regtta.Adapter) -> None:
    batches, predictions = load_following(name)
    found = torch.stack([adapter.adapt(x).predictions for x in batches])
    torch.testing.assert_close(found, predictions, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_0_1_0_stream_resumes_with_the_same_predictions(name):
    golden = STREAMS[name]
    adapter = golden.adapter()
    checkpoint = attach(regtta.Checkpoint(FOLDER / f"{name}_checkpoint.safetensors"), adapter)
    assert checkpoint.resume() == golden.batches
    assert_continues(name, adapter)


@pytest.mark.parametrize("name", ["mlp_ssa_default", "cnn_ssa_default", "mlp_ssa_safe", "cnn_ssa_safe"])
def test_a_0_1_0_stream_resumes_under_the_current_guard_presets(name):
    golden = STREAMS[name]
    adapter = golden.adapter(guards=regtta.SAFE if name.endswith("safe") else regtta.guards.DEFAULT)
    assert attach(regtta.Checkpoint(FOLDER / f"{name}_checkpoint.safetensors"), adapter).resume() == golden.batches
    assert_continues(name, adapter)


@pytest.mark.parametrize("name", ["mlp_ssa_safe", "cnn_ssa_safe"])
def test_a_0_1_0_stream_can_roll_back_to_its_good_model(name):
    adapter = STREAMS[name].adapter()
    attach(regtta.Checkpoint(FOLDER / f"{name}_checkpoint.safetensors"), adapter).resume()
    good = read_state(FOLDER / f"{name}_checkpoint.safetensors")["adapter"]["good"]["tensors"]
    assert adapter.rollback() == "good"
    now = adapter.export().state_dict()
    for key, value in good.items():
        assert torch.equal(now[key], value), key
    assert adapter.adapt(load_following(name)[0][0]).predictions.isfinite().all()


def test_a_0_1_0_state_file_without_a_checkpoint():
    adapter = STREAMS["mlp_ssa_default"].adapter()
    adapter.load_state_dict(read_state(FOLDER / "state_alone.safetensors"))
    assert_continues("mlp_ssa_default", adapter)


def test_a_monitored_0_1_0_stream_resumes_with_its_monitor():
    adapter = STREAMS["mlp_ssa_default"].adapter()
    monitor = attach(regtta.Monitor(), adapter)
    checkpoint = attach(regtta.Checkpoint(FOLDER / "monitored_checkpoint.safetensors"), adapter)
    assert checkpoint.resume() == 5
    for x, expected in zip(*load_following("mlp_ssa_default"), strict=True):
        torch.testing.assert_close(checkpoint.adapter.adapt(x).predictions, expected, rtol=1e-6, atol=1e-6)
    assert monitor.signals.evidence is not None  # evidence needs 32 samples, including those before the checkpoint


def test_a_monitored_0_1_0_stream_resumes_without_its_monitor():
    adapter = STREAMS["mlp_ssa_default"].adapter()
    assert attach(regtta.Checkpoint(FOLDER / "monitored_checkpoint.safetensors"), adapter).resume() == 5
    assert_continues("mlp_ssa_default", adapter)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("kind", ["plain", "restoration"])
def test_0_1_0_statistics_can_be_loaded(model, kind):
    source = regtta.SourceStatistics.load(FOLDER / f"{model}_statistics_{kind}.safetensors")
    assert (source.count, source.dimensions) == (400, 4)
    assert bool(source.extras) == (kind == "restoration")
    rebuilt = (source.basis * source.variances) @ source.basis.T
    torch.testing.assert_close(rebuilt.diagonal(), source.feature_variances, rtol=1e-9, atol=1e-12)


def test_a_stream_of_an_earlier_safe_preset_resumes_under_the_current_one():
    """A state that lacks only the latest guard of the preset."""
    earlier = tuple(guard for guard in regtta.SAFE if not isinstance(guard, regtta.guards.RepairableShift))
    batches, _ = load_following("mlp_ssa_safe")
    adapter = STREAMS["mlp_ssa_safe"].adapter(guards=earlier)
    adapter.adapt(batches[0])
    resumed = STREAMS["mlp_ssa_safe"].adapter(guards=regtta.SAFE)
    resumed.load_state_dict(adapter.state_dict())
    for x in batches[1:]:
        assert torch.equal(adapter.adapt(x).predictions, resumed.adapt(x).predictions)
