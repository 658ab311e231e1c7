"""Models that cannot be adapted raise errors that name the cause, from every public function."""

import warnings

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import ModelError
from regtta.models.model_checks import check_model

X = small_models.table(8)


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still in use
        return torch.jit.script(small_models.mlp())


def traced():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(small_models.mlp(), X)


def program():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(small_models.mlp(), (X,))


def exported_module():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program().module()


def dynamically_quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(small_models.mlp(), {nn.Linear})


def statically_quantized():
    quantization = torch.ao.quantization
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(quantization.QuantStub(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)).eval()
        model.qconfig = quantization.get_default_qconfig("x86")
        prepared = quantization.prepare(model)
        prepared(X)
        return quantization.convert(prepared)


def lazy():
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))


CASES = {
    "TorchScript": (scripted, r"found a TorchScript module.*load_state_dict\(scripted.state_dict\(\)\)"),
    "traced": (traced, "found a TorchScript module"),
    "program": (program, r"found a torch.export program.*nothing to adapt.*program.state_dict"),
    "module of a program": (exported_module, "found a torch.export program.*nothing to adapt"),
    "dynamic quantisation": (dynamically_quantized, r"is quantised \(0 and 2 other layers\).*adapter.export\(\)"),
    "static quantisation": (statically_quantized, "is quantised.*Adapt the floating-point model"),
    "lazy layers": (lazy, r"lazy layers without weights yet \(0.weight\).*model\(x\)"),
    "class": (lambda: nn.Linear, "found the class Linear.*an instance"),
    "state dict": (lambda: small_models.mlp().state_dict(), "found OrderedDict.*load_state_dict"),
    "function": (lambda: len, "Expected a torch.nn.Module, found builtin_function_or_method"),
}


@pytest.mark.parametrize("case", CASES)
def test_models_that_cannot_be_adapted(case):
    make, message = CASES[case]
    model = make()
    for use in (check_model, lambda m: regtta.collect(m, [X]), lambda m: regtta.Adapter(m, "source")):
        with pytest.raises(ModelError, match=message):
            use(model)


def test_models_that_can_be_adapted():
    for model in (small_models.mlp(), small_models.vit(), torch.fx.symbolic_trace(small_models.mlp())):
        check_model(model)
    initialised = lazy()
    initialised(X)
    check_model(initialised)


def test_a_lazy_model_after_its_first_call_is_adapted():
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(1))
    model(X)
    source = regtta.collect(model, small_models.table(100).split(20))
    assert regtta.Adapter(model, regtta.SSA(k=3), source).adapt(X + 1).adapted
