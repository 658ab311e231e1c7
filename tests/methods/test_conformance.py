"""Conformance suite of all methods, on every kind of model that they support.

A new entry of METHODS is checked without a change here. Models that a method does not support are listed in
``DOES_NOT_FIT``, and must raise a clear error.
"""

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta import guards
from regtta.errors import RegttaError
from regtta.methods import GradientMethod
from regtta.models.parameters import trainable_parameters
from regtta.persistence.state_files import read_state, write_state

MODELS = {
    "mlp": (small_models.mlp, small_models.table),
    "cnn": (small_models.cnn, small_models.images),
    "vit": (small_models.vit, small_models.images),
}
# Sizes for models as small as these.
ACCEPTING = guards.RepairableShift(level=0.9, tolerance=0.0, unexplained=1e3, least=2)
OPTIONS = {
    "ssa": {"k": 4},
    "auto": {"k": 4},
    "rsd": {"k": 3},
    "variance_minimization": {"views": 4},
    "cwsa": {"k": 4},
    "psc": {"k": 4},
}
DOES_NOT_FIT = {
    "bn_adapt": lambda kind, outputs: kind == "vit",
    "prototype": lambda kind, outputs: outputs > 1,
    "tent": lambda kind, outputs: outputs == 1,
    "ttt": lambda kind, outputs: kind == "mlp",
    "variance_minimization": lambda kind, outputs: kind == "mlp",
    "consistency": lambda kind, outputs: kind == "mlp",
    "recalibrate_once": lambda kind, outputs: kind == "vit",
}
REPLACED = {"prototype": {"weight"}, "recentre": {"bias"}, "recolour": {"weight", "bias"}}  # parameters of the head
CASES = [(name, kind, outputs) for name in regtta.METHODS for kind in MODELS for outputs in (1, 3)]
REFUSED = [case for case in CASES if case[0] in DOES_NOT_FIT and DOES_NOT_FIT[case[0]](*case[1:])]
FITTING = [case for case in CASES if case not in REFUSED]

every_case = pytest.mark.parametrize(("name", "kind", "outputs"), FITTING)


class Case:
    """One method on one model, with its streams."""

    def __init__(self, name, kind, outputs, dtype=torch.float32, **options):
        make, self.draw = MODELS[kind]
        self.dtype = dtype
        self.outputs = outputs
        self.model = make(outputs).to(dtype)
        self.method = regtta.create_method(name, **(OPTIONS.get(name, {}) | options))
        gathered = self.method
        if name == "ttt" and self.method.branch is None:
            gathered = regtta.TTT(branch=self.branch())
        self.source = regtta.collect(self.model, self.draw(300).to(dtype).split(50), methods=[gathered])

    def branch(self, seed=0):
        torch.manual_seed(seed)
        width = next(m for m in reversed(list(self.model.modules())) if isinstance(m, nn.Linear)).in_features
        return nn.Linear(width, 4).to(self.dtype)

    def adapter(self, **options):
        if self.method.selective:  # with a guard that accepts the small batches of these tests
            options["guards"] = (*options.get("guards", guards.DEFAULT), ACCEPTING)
        return regtta.Adapter(self.model, self.method, self.source, **options)

    def stream(self, batches=5, size=12, seed=3):
        inputs = self.draw(batches * size, shift=0.8, scale=1.4, seed=seed).to(self.dtype)
        return inputs.split(size)

    def adapt(self, adapter, x):
        if not self.method.takes_targets:
            return adapter.adapt(x)
        wanted = x.flatten(1).sum(dim=1, keepdim=True).expand(len(x), self.outputs) / x[0].numel()
        return adapter.adapt(x, targets=wanted.nan_to_num())

    def steps(self, adapter, stream):
        return [self.adapt(adapter, x) for x in stream]


@pytest.mark.parametrize(("name", "kind", "outputs"), REFUSED)
def test_unsupported_models_raise(name, kind, outputs):
    case = Case(name, kind, outputs)
    with pytest.raises(RegttaError, match="such as ssa"):
        case.steps(case.adapter(), case.stream())


@every_case
def test_the_users_model_is_not_changed(name, kind, outputs):
    case = Case(name, kind, outputs)
    case.model.train()
    before = small_models.model_snapshot(case.model)
    adapter = case.adapter()
    case.steps(adapter, case.stream())
    adapter.predict(case.stream()[0])
    adapter.reset()
    adapter.export()
    small_models.assert_unchanged(before, case.model)


@every_case
def test_exported_models_have_no_hooks(name, kind, outputs):
    case = Case(name, kind, outputs)
    adapter = case.adapter()
    case.steps(adapter, case.stream())
    for module in adapter.export().modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            assert not hooks


@every_case
def test_predictions_are_deterministic_and_reset_is_exact(name, kind, outputs):
    case = Case(name, kind, outputs)
    first, second = case.adapter(), case.adapter()
    for x in case.stream():
        assert torch.equal(case.adapt(first, x).predictions, case.adapt(second, x).predictions)
    first.reset()
    fresh = case.adapter()
    for x in case.stream(seed=8):
        a, b = case.adapt(first, x), case.adapt(fresh, x)
        assert torch.equal(a.predictions, b.predictions)
        assert a.diagnostics == b.diagnostics


@every_case
def test_frozen_parameters_do_not_change(name, kind, outputs):
    case = Case(name, kind, outputs)
    adapter = case.adapter()
    case.steps(adapter, case.stream())
    head = case.model.get_submodule(case.source.head)
    movable = set(trainable_parameters(case.model, head, case.method.schedule.trainable))
    movable |= {f"{case.source.head}.{parameter}" for parameter in REPLACED.get(name, ())}
    adapted = dict(adapter.export().named_parameters())
    moved = {key for key, value in case.model.named_parameters() if not torch.equal(value, adapted[key])}
    assert moved <= movable
    assert bool(moved) == bool(movable)


MOVES = {  # what of the small CNN each method moves, by the kind of tensor
    "source": set(),
    "bn_adapt": {"running"},
    "feature_alignment": {"affine", "running"},
    "ssa": {"affine", "running"},
    "auto": {"affine", "running"},
    "feature_restoration": {"affine", "running"},
    "prototype": {"head"},
    "variance_minimization": {"affine", "weights", "running"},
    "rsd": {"affine", "running"},
    "ttt": {"affine", "weights", "running"},
    "tent": {"affine", "running"},
    "cwsa": {"affine", "running"},
    "psc": {"affine", "running"},
    "dare_gram": {"affine", "running"},
    "actmad": {"affine"},
    "consistency": {"affine", "running"},
    "recentre": {"head"},
    "recolour": {"head"},
    "recalibrate_once": {"running"},
    "oracle": {"affine", "running"},
}


@pytest.mark.parametrize("name", regtta.METHODS)
def test_each_method_changes_only_its_trainable_parameters(name):
    case = Case(name, "cnn", 3 if name == "tent" else 1)
    adapter = case.adapter()
    case.steps(adapter, case.stream())
    kinds = {"1": "affine", "4": "affine", "0": "weights", "3": "weights", "9": "head"}
    began = case.model.state_dict()
    moved = {
        "running" if "running" in key or "tracked" in key else kinds[key.split(".")[0]]
        for key, value in adapter.export().state_dict().items()
        if not torch.equal(value, began[key])
    }
    assert moved == MOVES[name]


@pytest.mark.parametrize("mode", ["batch", "debiased"])
@pytest.mark.parametrize(
    ("name", "kind", "outputs"),
    # recalibrate_once weights the batches in its own way: see its tests.
    [case for case in FITTING if case[1] != "vit" and case[0] != "recalibrate_once"],
)
def test_running_statistics_are_updated_by_one_pass_over_the_batch(name, kind, outputs, mode):
    """Further passes of a method, such as augmented views, must not update the running statistics."""
    normalises_by_batch = "batch_norm" in {field.name for field in dataclasses.fields(regtta.METHODS[name])}
    case = Case(name, kind, outputs, **({"batch_norm": mode, "bn_momentum": 0.1} if normalises_by_batch else {}))
    adapter, stream = case.adapter(), case.stream(2)
    expected = copy.deepcopy(case.model).eval()
    for number, x in enumerate(stream, start=1):
        assert case.adapt(adapter, x).diagnostics.verdict.learned == (name != "source")
        if normalises_by_batch:
            for layer in expected.modules():
                if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                    layer.train()
                    layer.momentum = 0.1 if mode == "batch" else 0.1 / (1 - 0.9**number)
            with torch.no_grad():
                expected(x)
        # The parameters after the step, which the next pass uses.
        adapted = adapter.export()
        for key, value in expected.named_buffers():
            torch.testing.assert_close(adapted.get_buffer(key), value, msg=lambda text, key=key: f"{key}: {text}")
        expected.load_state_dict(adapted.state_dict())


@every_case
def test_bad_batches_change_nothing(name, kind, outputs):
    case = Case(name, kind, outputs)
    adapter, spared = case.adapter(), case.adapter()
    good, later = case.stream(2)
    for each in (adapter, spared):
        case.adapt(each, good)
    for bad in (torch.full_like(later, torch.nan), later[:1], later[:1].expand_as(later)):
        expected = adapter.predict(bad)
        step = case.adapt(adapter, bad)
        assert not step.diagnostics.verdict.learned
        assert step.diagnostics.verdict.reason
        assert torch.equal(step.predictions.nan_to_num(), expected.nan_to_num())
    assert torch.equal(case.adapt(adapter, later).predictions, case.adapt(spared, later).predictions)


@every_case
def test_bad_samples_have_no_effect(name, kind, outputs):
    case = Case(name, kind, outputs)
    struck, spared = case.adapter(), case.adapter()
    for batch in case.stream(3):
        poisoned = batch.clone()
        poisoned[2].fill_(torch.nan)
        others = [row for row in range(len(batch)) if row != 2]
        step, expected = case.adapt(struck, poisoned), case.adapt(spared, batch[others])
        assert step.excluded_rows == (2,)
        assert step.diagnostics == expected.diagnostics
        assert torch.equal(step.predictions[others], expected.predictions)
    assert torch.equal(struck.predict(batch), spared.predict(batch))


@every_case
def test_a_saved_stream_resumes_exactly(name, kind, outputs, tmp_path):
    case = Case(name, kind, outputs)
    whole, first, second = case.adapter(), case.adapter(), case.adapter()
    stream = case.stream(6)
    steps = case.steps(whole, stream)
    case.steps(first, stream[:3])
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for step, x in zip(steps[3:], stream[3:], strict=True):
        again = case.adapt(second, x)
        assert torch.equal(again.predictions, step.predictions)
        assert again.diagnostics == step.diagnostics


def assert_same_state(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a.keys() - {"begun"}:
            assert_same_state(a[key], b[key])
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


STREAMS = [  # beyond every method as it is: what remembers more
    ("ssa", {"k": 4, "window": 16, "batch_norm": "blended"}, guards.DEFAULT),
    ("ssa", {"k": 4, "batch_norm": "debiased"}, guards.DEFAULT),
    ("ssa", {"k": 4, "steps": 2, "optimizer": "rmsprop"}, guards.SAFE),
    ("ssa", {"k": 4, "window": 64, "batch_norm": "source"}, (guards.Gate(level=0.9, tolerance=0.0, least=2),)),
    ("ssa", {"k": 4, "window": 64, "batch_norm": "source"}, (guards.HealthCheck(every=2),)),
    *((name, {}, guards.SAFE) for name in regtta.METHODS if name != "tent"),
]


@pytest.mark.parametrize(
    ("name", "kind", "outputs", "options", "watched_by"),
    [
        *((*case, {}, guards.DEFAULT) for case in FITTING),
        *((name, "cnn", 1, options, watched_by) for name, options, watched_by in STREAMS),
        ("tent", "cnn", 3, {}, guards.SAFE),
    ],
)
def test_a_stream_resumed_from_a_file_at_every_batch_is_exact(name, kind, outputs, options, watched_by, tmp_path):
    """Process every batch by a new adapter, restored from the file."""
    case = Case(name, kind, outputs, **options)
    stream = [*case.stream(8, 20), *case.stream(1, 5), *case.stream(3, 20, seed=6)]
    whole = case.adapter(guards=watched_by)
    path = tmp_path / "stream.safetensors"
    for index, x in enumerate(stream):
        step = case.adapt(whole, x)
        resumed = case.adapter(guards=watched_by)
        if index:
            resumed.load_state_dict(read_state(path))
        again = case.adapt(resumed, x)
        assert again.index == step.index
        assert again.diagnostics == step.diagnostics
        assert torch.equal(again.predictions, step.predictions)
        assert_same_state(resumed.state_dict(), whole.state_dict())
        write_state(path, resumed.state_dict(), overwrite=True)


@pytest.mark.parametrize(
    ("name", "kind", "outputs"), [c for c in FITTING if issubclass(regtta.METHODS[c[0]], GradientMethod)]
)
def test_loss_decreases_on_a_stationary_shifted_stream(name, kind, outputs):
    case = Case(name, kind, outputs)
    adapter = case.adapter(lr=1e-2)
    losses = [step.diagnostics.loss for step in case.steps(adapter, case.stream(50, 32))]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-10:]) < 0.97 * sum(losses[:10]), (sum(losses[-10:]), sum(losses[:10]))


@every_case
def test_float32_and_float64_agree(name, kind, outputs):
    single, double = Case(name, kind, outputs), Case(name, kind, outputs, torch.float64)
    a = torch.cat([step.predictions for step in single.steps(single.adapter(), single.stream(3))])
    b = torch.cat([step.predictions for step in double.steps(double.adapter(), double.stream(3))])
    torch.testing.assert_close(a.double(), b, rtol=1e-2, atol=1e-2)


@every_case
def test_a_last_batch_of_another_size(name, kind, outputs):
    case = Case(name, kind, outputs)
    stream = [*case.stream(2, 12), *case.stream(1, 5)]
    steps = case.steps(case.adapter(), stream)
    assert [tuple(step.predictions.shape) for step in steps] == [(12, outputs), (12, outputs), (5, outputs)]
    assert all(step.predictions.isfinite().all() for step in steps)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@every_case
def test_cpu_and_gpu_agree(name, kind, outputs):
    case = Case(name, kind, outputs)
    there = copy.deepcopy(case)
    there.model = there.model.cuda()
    here = torch.cat([step.predictions for step in case.steps(case.adapter(), case.stream(3))])
    gpu = torch.cat([step.predictions for step in there.steps(there.adapter(), case.stream(3))])
    assert gpu.is_cuda
    torch.testing.assert_close(gpu.cpu(), here, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", [name for name in regtta.METHODS if name != "tent"])
def test_a_stream_on_a_gpu_resumes_from_a_file(name, tmp_path):
    """Tensors are read to the CPU and must be moved to the GPU."""
    case = Case(name, "cnn", 1)
    case.model = case.model.cuda()
    whole, first, second = (case.adapter(guards=guards.SAFE) for _ in range(3))
    stream = [x.cuda() for x in case.stream(14, 20)]
    steps = case.steps(whole, stream)
    case.steps(first, stream[:9])
    write_state(tmp_path / "s", first.state_dict())
    second.load_state_dict(read_state(tmp_path / "s"))
    for step, x in zip(steps[9:], stream[9:], strict=True):
        again = case.adapt(second, x)
        assert again.diagnostics.verdict == step.diagnostics.verdict
        torch.testing.assert_close(again.predictions, step.predictions)  # atomics add in any order


@pytest.mark.parametrize("outputs", [1, 3])
def test_no_two_methods_predict_the_same(outputs):
    finals = {}
    for name in regtta.METHODS:
        if (name, "cnn", outputs) in FITTING:
            case = Case(name, "cnn", outputs)
            adapter = case.adapter()
            case.steps(adapter, case.stream())
            finals[name] = adapter.predict(case.stream()[0])
    assert len(finals) >= 9
    assert torch.equal(finals.pop("auto"), finals["ssa"])  # the same steps where the guard accepts every batch
    names = list(finals)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert not torch.allclose(finals[a], finals[b], rtol=1e-6, atol=1e-8), (a, b)


VARIANTS = {
    "k": 2,
    "weighting": False,
    "metric": "w2",
    "unbiased": False,
    "lr": 0.05,
    "optimizer": "rmsprop",
    "batch_norm": "debiased",
    "steps": 3,
    "bins": 4,
    "temperature": 0.1,
    "epsilon": 0.1,
    "rescale": False,
    "views": 3,
    "augment": lambda x, generator: x + 0.1 * torch.randn(x.shape, generator=generator),
    "seed": 1,
    "mismatch": 5.0,
    "restore": 0.5,
    "bn_momentum": 0.5,
    "slack": 0.1,
    "explained": 0.6,
    "angle": 5.0,
    "scale": 5.0,
    "per_location": False,
    "pixels": 1,
    "prior_samples": 8,
    "samples": 24,
    "branch": nn.Linear(10, 4),
    "task": None,  # another kind of label: see the oracle's own tests
    "clip": None,  # does something only beyond the rank: see the methods' own tests
}


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field.name) for name, cls in regtta.METHODS.items() for field in dataclasses.fields(cls)],
)
def test_every_hyperparameter_changes_something(name, field):
    """Another value of an option gives other predictions."""
    outputs = 3 if name == "tent" else 1
    plain = Case(name, "cnn", outputs)
    value = VARIANTS.get(field)
    if field == "batch_norm" and plain.method.batch_norm == value:
        value = "batch"
    if field == "trainable":
        value = "affine" if plain.method.trainable == "extractor" else "extractor"
    if value is None or (field == "bn_momentum" and plain.method.batch_norm == "source"):
        pytest.skip("checked in the method's own tests")
    varied = Case(name, "cnn", outputs, **{field: value})
    adapters = plain.adapter(), varied.adapter()
    for adapter in adapters:
        plain.steps(adapter, plain.stream())
    x = plain.stream()[0]
    assert not torch.equal(adapters[0].predict(x), adapters[1].predict(x))
