import pytest
import torch

from regtta.errors import OptionError
from regtta.execution.modes import FAST, PLAIN, Execution


def test_plain_does_not_change_torch_settings():
    with PLAIN.arithmetic(torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_bfloat16_runs_matrix_products_in_bfloat16():
    with FAST.arithmetic(torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_tf32_is_enabled_only_inside_the_context():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with Execution(precision="tf32").arithmetic(torch.device("cuda")):
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_unknown_precisions_are_rejected():
    with pytest.raises(OptionError, match="precision"):
        Execution(precision="float16")
