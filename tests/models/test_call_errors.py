import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.errors import BatchError, ModelError
from regtta.models.features import run_model
from regtta.models.layer_calls import eval_mode
from regtta.models.model_inputs import ModelInputs
from regtta.models.parameters import model_device


def test_a_model_that_returns_no_tensor():
    class Answers(nn.Module):
        def forward(self, x):
            return "an answer"

    with pytest.raises(ModelError, match=r"return a tensor \(B, ...\) of predictions, found str"):
        run_model(Answers(), torch.randn(2, 5))


DTYPES = {
    "linear": lambda: nn.Linear(5, 1),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3), nn.Flatten()),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 1)),
    "recurrent": lambda: Last(nn.LSTM(5, 4, batch_first=True)),
    "attention": lambda: nn.Sequential(nn.Unflatten(1, (1, 5)), nn.TransformerEncoderLayer(5, 1, 4), nn.Flatten()),
}


class Last(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x[:, None])[0][:, -1]


@pytest.mark.parametrize("layer", DTYPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_inputs_of_another_dtype_than_the_parameters(layer, dtype):
    torch.manual_seed(0)
    model, x = DTYPES[layer]().eval(), torch.ones(4, 5)
    assert run_model(model, x).dtype == torch.float32
    with pytest.raises(
        BatchError, match=rf"inputs of {dtype}: its parameters are of torch.float32 .*x\.float\(\)"
    ) as told:
        run_model(model, x.to(dtype))
    assert isinstance(told.value.__cause__, (RuntimeError, ValueError))


@pytest.mark.parametrize(
    ("dtype", "fix"),
    [(torch.float64, r"x\.double\(\)"), (torch.bfloat16, r"x\.bfloat16\(\)"), (torch.float16, r"x\.half\(\)")],
)
def test_the_suggested_fix_names_the_dtype_of_the_parameters(dtype, fix):
    with pytest.raises(BatchError, match=rf"inputs of torch.float32: its parameters are of {dtype} .*{fix}"):
        run_model(nn.Linear(5, 1).to(dtype), torch.ones(4, 5))


def test_the_dtype_error_is_the_same_with_replaced_tensors():
    model = nn.Linear(5, 1)
    tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}
    with pytest.raises(BatchError, match="inputs of torch.float64"):
        run_model(model, torch.ones(4, 5).double(), tensors)


def test_integer_inputs_of_embeddings_are_accepted():
    model = nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, 1))
    ids = torch.arange(12).reshape(4, 3) % 10
    assert torch.equal(run_model(model, ids), model(ids))


class Raises(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.error = error

    def forward(self, x):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x7 and 5x12)"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        TypeError("unsupported operand type(s) for +: 'int' and 'NoneType'"),
        ValueError("expected 2D or 3D input (got 1D input)"),
        KeyError("dtype"),
        IndexError("index out of range in self"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_other_errors_of_the_model_propagate_unchanged(error, dtype):
    with pytest.raises(type(error)) as told:
        run_model(Raises(error), torch.ones(4, 5).to(dtype))
    assert told.value is error


def test_a_dtype_error_with_inputs_of_the_right_dtype_propagates_unchanged():
    error = RuntimeError("expected scalar type Long but found Float")
    with pytest.raises(RuntimeError) as told:
        run_model(Raises(error), torch.ones(4, 5))
    assert told.value is error


def test_model_device():
    assert model_device(small_models.mlp()) == torch.device("cpu")
    assert model_device(nn.Linear(2, 1, device="meta")) == torch.device("meta")
    assert model_device(nn.BatchNorm1d(2, affine=False, device="meta")) == torch.device("meta")
    assert model_device(nn.ReLU()) == torch.device("cpu")


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 1)

    def forward(self, x, offset, *, scale=1.0):
        return {"prediction": self.fc(x) * scale + offset[:, None], "inputs": x}


def test_positional_and_keyword_arguments_reach_the_model():
    model, x, offset = TwoInputs(), torch.ones(4, 5), torch.arange(4.0)
    inputs = ModelInputs((x,), {"offset": offset, "scale": 2.0})
    expected = model(x, offset, scale=2.0)["prediction"]
    assert torch.equal(run_model(model, inputs, None, "prediction"), expected)
    tensors = {name: torch.zeros_like(tensor) for name, tensor in model.named_parameters()}
    assert torch.equal(run_model(model, inputs, tensors, "prediction"), offset[:, None])


@pytest.mark.parametrize(
    ("inputs", "cause"),
    [
        (torch.ones(4, 5), "missing 1 required positional argument: 'offset'"),
        (ModelInputs((torch.ones(4, 5),) * 3), "takes 3 positional arguments but 4 were given"),
        (ModelInputs((torch.ones(4, 5),), {"bias": torch.ones(4)}), "unexpected keyword argument 'bias'"),
    ],
)
def test_arguments_that_the_model_does_not_take_name_the_option(inputs, cause):
    with pytest.raises(BatchError, match=rf"cannot be called with this batch.*{cause}.*inputs=<key, index"):
        run_model(TwoInputs(), inputs)


def test_one_of_several_tensors_of_another_dtype():
    inputs = ModelInputs((torch.ones(4, 5).double(), torch.ones(4)))
    with pytest.raises(BatchError, match="inputs of torch.float64: its parameters are of torch.float32"):
        run_model(TwoInputs(), inputs)


def test_eval_mode_restores_every_mode():
    model = small_models.mlp().train()
    model[1].eval()
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert model.training
    assert not model[1].training
