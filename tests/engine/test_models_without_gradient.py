"""Models whose forward pass cuts the gradient: an error that says so."""

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import ModelError

X = small_models.table(32, shift=1.0)


class Cutting(nn.Module):
    """Model whose features have no gradient."""

    def __init__(self, mode):
        super().__init__()
        self.body, self.head, self.mode = small_models.mlp(8), nn.Linear(8, 1), mode

    def forward(self, x):
        if self.mode == "no_grad":
            with torch.no_grad():
                return self.head(self.body(x))
        if self.mode == "inference_mode":
            with torch.inference_mode():
                return self.head(self.body(x))
        return self.head(self.body(x).detach())


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "detach"])
@pytest.mark.parametrize("optimizer", ["adam", torch.optim.SGD])
def test_a_forward_pass_without_gradient_is_a_model_error(mode, optimizer):
    model = Cutting(mode).eval()
    source = regtta.collect(model, small_models.table(400).split(50))
    adapter = regtta.Adapter(model, "ssa", source, optimizer=optimizer)
    before = {name: value.clone() for name, value in adapter.model.state_dict().items()}
    with pytest.raises(
        ModelError, match=r"torch\.no_grad\(\) or torch\.inference_mode\(\), or calls detach\(\)"
    ) as found:
        adapter.adapt(X)
    assert "Remove it" in str(found.value)
    assert isinstance(found.value.__cause__, RuntimeError)
    assert all(torch.equal(value, before[name]) for name, value in adapter.model.state_dict().items())


def test_other_errors_of_the_backward_pass_are_not_translated():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("from the model")

    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = small_models.mlp(8), nn.Linear(8, 1)

        def forward(self, x):
            return self.head(Fails.apply(self.body(x)))

    model = Failing().eval()
    adapter = regtta.Adapter(model, "ssa", regtta.collect(model, small_models.table(400).split(50)))
    with pytest.raises(RuntimeError, match="from the model") as found:
        adapter.adapt(X)
    assert not isinstance(found.value, ModelError)
