import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.method_inputs import FEATURES, batch_of, context_of, head_of, source_of
from regtta.errors import ModelError


def test_worked_example():
    # Source mean (1, 1, 1, 1), batch mean (2, 2, 1, 2), w = (1, 2, 0, −1): b = 0 + 1·(−1) + 2·(−1) − 1·(−1) = −2.
    source = source_of([[0.0, 2, 0, 2], [2.0, 0, 2, 0]])
    rule = regtta.Recentre().start(context_of(head_of([1.0, 2.0, 0.0, -1.0]), source))
    update = rule.update(batch_of(FEATURES))
    assert update.weight is None
    assert update.bias.tolist() == pytest.approx([-2.0])


@pytest.mark.parametrize("outputs", [1, 3])
def test_predictions_are_those_of_recentred_features(outputs):
    model = small_models.mlp(outputs).double()
    data, x = small_models.table(300).double(), small_models.table(60, shift=0.7).double()
    adapter = regtta.Adapter(model, regtta.Recentre(), regtta.collect(model, data.split(50)))
    seen = []
    for batch in x.split([7, 30, 23]):
        adapter.adapt(batch)
        seen.append(batch)
        with torch.no_grad():
            source_mean, target_mean = model[:6](data).mean(0), model[:6](torch.cat(seen)).mean(0)
            expected = model[6](model[:6](x) - target_mean + source_mean)
        torch.testing.assert_close(adapter.predict(x), expected, rtol=1e-10, atol=1e-10)
    # On the target the mean output is that of the source.
    with torch.no_grad():
        torch.testing.assert_close(adapter.predict(x).mean(0), model(data).mean(0), rtol=1e-10, atol=1e-10)
    assert torch.equal(adapter.export()[6].weight, model[6].weight)


def test_a_head_without_a_bias_raises():
    model = small_models.mlp()
    model[6] = nn.Linear(12, 1, bias=False)
    source = regtta.collect(model, small_models.table(100).split(50))
    for method in (regtta.Recentre(), regtta.Recolour()):
        with pytest.raises(ModelError, match=f"head with a bias, which {method.name} moves.*bias=True.*such as ssa"):
            regtta.Adapter(model, method, source)


def test_several_layers_as_a_head_raise():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.mean, self.spread = nn.Linear(5, 8), nn.Linear(8, 1), nn.Linear(8, 1)

        def forward(self, x):
            z = self.body(x).relu()
            return torch.cat([self.mean(z), self.spread(z)], dim=1)

    model = TwoHeads()
    source = regtta.collect(model, small_models.table(100).split(50))
    for method in (regtta.Recentre(), regtta.Recolour()):
        with pytest.raises(ModelError, match=f"{method.name} replaces the weights of the head"):
            regtta.Adapter(model, method, source)


def test_a_weight_that_is_computed_stays_as_it_is():
    model = small_models.mlp()
    nn.utils.parametrizations.spectral_norm(model[6])
    model.eval()
    source = regtta.collect(model, small_models.table(100).split(50))
    adapter = regtta.Adapter(model, regtta.Recentre(), source)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert adapter.adapt(small_models.table(20, shift=1.0)).adapted
    after = adapter.export().state_dict()
    assert {name for name, value in before.items() if not torch.equal(after[name], value)} == {"6.bias"}
