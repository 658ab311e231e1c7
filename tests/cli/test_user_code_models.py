from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from helpers.cli_workspace import extract_inputs, library_model
from regtta.cli.user_code import floating_dtype, load_model
from regtta.errors import MismatchError, MissingFileError, ModelError, OptionError


def test_weights_are_loaded(workspace: Path):
    inputs = extract_inputs(workspace / "target.csv")
    model = load_model("mymodel:make", workspace / "weights.safetensors").eval()
    bare = load_model("mymodel:make").eval()
    assert torch.equal(model(inputs), library_model()(inputs))
    assert not torch.allclose(bare(inputs), model(inputs))


def test_weights_of_torch_save_are_loaded_too(workspace: Path):
    torch.save(library_model().state_dict(), workspace / "weights.pt")
    inputs = extract_inputs(workspace / "target.csv")
    model = load_model("mymodel:make", workspace / "weights.pt").eval()
    assert torch.equal(model(inputs), library_model()(inputs))


def test_a_module_instance_is_accepted(workspace: Path):
    (workspace / "ready.py").write_text("from torch import nn\nnet = nn.Linear(2, 1)\n")
    assert isinstance(load_model("ready:net"), nn.Linear)


def test_missing_and_unexpected_names_are_listed(workspace: Path):
    weights = load_file(workspace / "weights.safetensors")
    weights["4.weight"] = weights.pop("3.weight")
    save_file(weights, workspace / "renamed.safetensors")
    with pytest.raises(MismatchError, match="missing '3.weight'; unexpected '4.weight'. Pass the weights"):
        load_model("mymodel:make", workspace / "renamed.safetensors")


def test_mismatched_shapes_are_listed(workspace: Path):
    with pytest.raises(MismatchError, match=r"'0.weight' is \(8, 3\) in the file and \(9, 3\) in the model"):
        load_model("mymodel:make_wider", workspace / "weights.safetensors")


def test_long_lists_of_names_are_truncated(workspace: Path):
    save_file({f"w{i}": torch.zeros(1) for i in range(7)}, workspace / "other.safetensors")
    with pytest.raises(MismatchError, match="unexpected 'w0', 'w1', 'w2' and 4 more"):
        load_model("mymodel:make", workspace / "other.safetensors")


def test_weights_of_a_data_parallel_model_are_recognised(workspace: Path):
    wrapped = {f"module.{name}": value for name, value in library_model().state_dict().items()}
    save_file(wrapped, workspace / "wrapped.safetensors")
    with pytest.raises(MismatchError, match=r"save model.module.state_dict\(\) instead"):
        load_model("mymodel:make", workspace / "wrapped.safetensors")


def test_old_checkpoints_without_the_batch_counter_load(workspace: Path):
    weights = load_file(workspace / "weights.safetensors")
    del weights["1.num_batches_tracked"]
    save_file(weights, workspace / "old.safetensors")
    inputs = extract_inputs(workspace / "target.csv")
    model = load_model("mymodel:make", workspace / "old.safetensors").eval()
    assert torch.equal(model(inputs), library_model()(inputs))


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("mymodel:fails", ModelError, r"ValueError: no weights to be found \(mymodel.py, line \d+\)"),
        ("mymodel:number", OptionError, "a function that returns a model, found int"),
        ("mymodel:generator", ModelError, "return a torch.nn.Module, found generator"),
    ],
)
def test_factories_that_return_no_model_are_rejected(workspace: Path, name, error, words):
    with pytest.raises(error, match=words):
        load_model(name)


def test_missing_weights_are_reported(workspace: Path):
    with pytest.raises(MissingFileError, match="no file nothing.pt"):
        load_model("mymodel:make", Path("nothing.pt"))


def test_an_unknown_device_is_rejected(workspace: Path):
    with pytest.raises(OptionError, match="Cannot use --device flux.*Leave it out"):
        load_model("mymodel:make", device="flux")
    assert load_model("mymodel:make", device="cpu") is not None


def test_the_precision_of_a_model_without_weights():
    assert floating_dtype(nn.ReLU()) == torch.float32
