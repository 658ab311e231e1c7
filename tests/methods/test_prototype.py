import pytest
import torch

import regtta
import zoo
from methods.by_hand import batch_of, head_of, stage_of
from regtta.errors import ModelError


def test_by_hand():
    # w0 = (2, 0, 0, 0), features sum to (6, 6, 3, 6): the mean of four vectors is (2, 1.5, 0.75, 1.5).
    head = head_of([2.0, 0.0, 0.0, 0.0])
    mean = torch.tensor([[2.0, 1.5, 0.75, 1.5]], dtype=torch.float64)
    plain = regtta.Prototype(rescale=False).start(stage_of(head)).update(batch_of())
    torch.testing.assert_close(plain.weight, mean)
    assert plain.bias is None
    scaled = regtta.Prototype().start(stage_of(head)).update(batch_of())
    torch.testing.assert_close(scaled.weight, 2 * mean / mean.norm())


def test_batches_add_up():
    head = head_of([2.0, 1.0, 0.0, -1.0])
    features = torch.randn(20, 4, dtype=torch.float64)
    rule = regtta.Prototype(rescale=False).start(stage_of(head))
    for part in features.split(7):
        update = rule.update(batch_of(part))
    expected = torch.cat([head.weight.detach(), features]).numpy().mean(axis=0)
    assert update.weight[0].tolist() == pytest.approx(expected.tolist())


def test_the_bias_stays_and_the_norm_too():
    model = zoo.mlp()
    adapter = regtta.Adapter(model, regtta.Prototype())
    list(adapter.run(zoo.table(40, shift=1.0).split(10)))
    adapted = adapter.export()
    assert torch.equal(adapted[6].bias, model[6].bias)
    assert not torch.allclose(adapted[6].weight, model[6].weight)
    torch.testing.assert_close(adapted[6].weight.norm(), model[6].weight.norm())


def test_several_outputs_are_refused():
    with pytest.raises(ModelError, match="gives 2 outputs"):
        regtta.Prototype().start(stage_of(head_of([1.0] * 4, [0.0] * 4)))
