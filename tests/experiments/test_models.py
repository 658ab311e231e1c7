import torch
from torch import nn

from regtta.experiments.models import resnet26, tabular_mlp
from regtta.features import find_head


def test_the_tabular_model_is_the_papers():
    model = tabular_mlp(8, outputs=3)
    linears = [m for m in model if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features, m.bias is None) for m in linears] == [
        (8, 100, True),
        *[(100, 100, True)] * 4,
        (100, 3, False),
    ]
    assert find_head(model, torch.randn(2, 8)) == "15"


def test_resnet26_has_2048_features():
    model = resnet26(outputs=2)
    assert find_head(model, torch.rand(2, 3, 32, 32)) == "fc"
    assert (model.fc.in_features, model.fc.out_features) == (2048, 2)
