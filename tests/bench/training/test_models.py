import logging

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from regtta.errors import MismatchError
from regtta.models.head_search import find_head
from regtta_bench.training.models import resnet26, resnet50, tabular_mlp, vit_b16


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


def test_resnet50_takes_the_users_weights_but_for_the_head(tmp_path, caplog):
    theirs = torchvision.models.resnet50(num_classes=1000)
    torch.save(theirs.state_dict(), tmp_path / "resnet50.pth")
    with caplog.at_level(logging.WARNING, "regtta"):
        model = resnet50(outputs=3, weights=tmp_path / "resnet50.pth")
    assert not caplog.records
    assert torch.equal(model.layer4[0].conv1.weight, theirs.layer4[0].conv1.weight)
    assert torch.equal(model.bn1.running_var, theirs.bn1.running_var)
    assert (model.fc.in_features, model.fc.out_features) == (2048, 3)
    assert find_head(model, torch.rand(2, 3, 64, 64)) == "fc"


def test_a_model_without_weights_logs_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "regtta"):
        resnet50()
    assert "ResNet-50 starts from random weights" in caplog.text


def test_weights_of_another_model_are_rejected(tmp_path):
    save_file(torchvision.models.resnet18(num_classes=2).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(MismatchError, match=r"do not fit ResNet-50: \d+ entries differ"):
        resnet50(weights=tmp_path / "w.safetensors")


def test_vit_b16_has_768_features():
    model = vit_b16(outputs=2).eval()
    assert find_head(model, torch.rand(1, 3, 224, 224)) == "head"
    assert (model.head.in_features, model.head.out_features) == (768, 2)
