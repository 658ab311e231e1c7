"""Findings of ``regtta.check`` on models, batches and statistics with one problem each."""

import json
import logging

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.checks import CheckResult, Finding

SHIFTED = small_models.table(64, shift=1.0, scale=1.5, seed=2)


@pytest.fixture(scope="module")
def model():
    return small_models.mlp()


@pytest.fixture(scope="module")
def source(model):
    return regtta.collect(model, small_models.table(400).split(50))


def find(result, topic, level=None):
    """Return the messages of a topic."""
    return [f.message for f in result.findings if f.topic == topic and level in (None, f.level)]


def test_everything_is_ok_on_a_trained_model_with_its_statistics(model, source, caplog):
    before = small_models.model_snapshot(model)
    result = regtta.check(model, SHIFTED, source)
    assert result.ok
    assert result.errors == result.warnings == ()
    assert {finding.level for finding in result.findings} == {"ok"}
    assert (result.head, result.features, result.method, result.model) == ("6", 12, "ssa", "Sequential")
    assert result.moving[:4] == ("1.weight", "1.bias", "4.weight", "4.bias")
    assert set(result.moving[4:]) == {f"{layer}.running_{kind}" for layer in (1, 4) for kind in ("mean", "var")}
    assert result.cost > 0
    assert result.seconds > 0
    assert caplog.messages == []
    small_models.assert_unchanged(before, model)


def test_a_model_in_train_mode_is_not_changed(source):
    model = small_models.mlp().train()
    before = small_models.model_snapshot(model)
    assert regtta.check(model, SHIFTED, source).ok
    small_models.assert_unchanged(before, model)


def test_without_statistics_the_rest_is_checked(model, caplog):
    result = regtta.check(model, SHIFTED)
    assert result.ok
    assert result.warnings == ()
    assert find(result, "statistics") == [
        "ssa needs source statistics; none were given. Collect them once with regtta.collect(model, loader)."
    ]
    assert result.cost > 0
    assert caplog.messages == []


def test_statistics_may_be_a_file(model, source, tmp_path):
    source.save(tmp_path / "s.safetensors")
    assert regtta.check(model, SHIFTED, tmp_path / "s.safetensors").ok
    (error,) = regtta.check(model, SHIFTED, str(tmp_path / "absent.safetensors")).errors
    assert f"There is no file {tmp_path / 'absent.safetensors'}" in error


@pytest.mark.parametrize(
    "name", [n for n in regtta.METHODS if n not in ("ttt", "variance_minimization", "tent", "consistency")]
)
def test_every_method_can_be_checked(model, name):
    methods = [regtta.FeatureRestoration(), regtta.ActMAD()]
    source = regtta.collect(model, small_models.table(400).split(50), methods=methods)
    result = regtta.check(model, SHIFTED, source, method=name)
    assert result.ok, str(result)
    assert result.warnings == ()


def test_a_method_may_be_an_object_with_overrides(model, source):
    result = regtta.check(model, SHIFTED, source, method=regtta.SSA(k=4), trainable="extractor")
    assert "0.weight" in result.moving
    assert "6.weight" not in result.moving


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "nope"}, "Expected the method to be one of"),
        ({"k": 0}, "Expected k to be a whole number of at least 1"),
        ({"window": 1}, "one sample has no variance"),
        ({"method": regtta.SSA}, "found the class SSA, not an instance"),
        ({"method": "tent"}, "tent needs logits of at least 2 classes"),
        ({"method": "feature_restoration"}, "needs source statistics beyond the moments"),
        ({"head": "0"}, "collected at the head '6', not at '0'"),
        ({"head": "nothing"}, "Pass head=<name>"),
        ({"inputs": 1.5}, "Expected inputs to be a key"),
    ],
)
def test_wrong_options_are_errors_with_their_fix(model, source, options, words):
    result = regtta.check(model, SHIFTED, source, **options)
    assert not result.ok
    assert words in " ".join(result.errors)
    assert result.cost is None


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (torch.randn(64, 7), "The model cannot take the batch (RuntimeError"),
        (torch.randn(64, 5).double(), "x.float()"),
        (torch.randn(0, 5), "The batch has no samples"),
        ("x", "Expected a tensor of inputs, found str"),
        ({"a": torch.randn(4, 5), "b": torch.randn(4, 5)}, "Pass inputs=<key>"),
    ],
)
def test_batches_that_the_model_cannot_take(model, source, batch, words):
    result = regtta.check(model, batch, source)
    assert not result.ok
    assert words in result.errors[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (3, "Expected a torch.nn.Module, found int"),
        (nn.Linear, "found the class Linear"),
        (nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 1)), "lazy layers"),
        (nn.Sequential(nn.Conv1d(5, 4, 3)), "no nn.Linear"),
    ],
)
def test_models_that_cannot_be_adapted(wrong, words):
    result = regtta.check(wrong, SHIFTED)
    assert not result.ok
    assert words in result.errors[0]


def test_samples_that_are_not_finite_are_a_warning(model, source):
    batch = SHIFTED.clone()
    batch[3, 1] = torch.nan
    result = regtta.check(model, batch, source)
    assert result.ok
    assert "1 of 64 samples are not finite" in result.warnings[0]


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_of_another_model_or_head(model, source):
    (error,) = regtta.check(small_models.mlp(seed=5), SHIFTED, source).errors
    assert "collected on another model" in error
    (error,) = regtta.check(small_models.mlp(width=9), SHIFTED, source, head="6").errors
    assert "collected on another model" in error


def test_k_beyond_the_rank_is_a_warning_only_if_it_was_asked_for(model, source):
    assert regtta.check(model, SHIFTED, source).warnings == ()
    (warning,) = regtta.check(model, SHIFTED, source, k=100).warnings
    rank = source.numerical_rank
    assert warning == f"k=100 is beyond the numerical rank {rank} of the source features: using {rank}."


def test_too_few_source_samples_are_a_warning(model):
    few = regtta.collect(model, [small_models.table(20)])
    assert regtta.check(model, SHIFTED, few, k=10).warnings == ()
    (warning,) = regtta.check(model, SHIFTED, few, k=11).warnings
    assert "20 source samples are used to align 11 directions" in warning
    assert "at least 22 samples" in warning


# --- the batch size -------------------------------------------------------------------------------


def test_a_single_sample_is_an_error_unless_a_window_keeps_others(model, source):
    (error,) = regtta.check(model, SHIFTED[:1], source).errors
    assert error == ('ssa cannot learn from a batch of 1. Pass larger batches, or window=64, batch_norm="blended".')
    (error,) = regtta.check(model, SHIFTED[:1], source, window=32).errors
    assert 'batch_norm="blended"' in error
    result = regtta.check(model, SHIFTED[:1], source, window=32, batch_norm="blended")
    assert result.ok
    assert result.cost > 0


@pytest.mark.parametrize(("rows", "warned"), [(15, True), (16, False), (64, False)])
def test_small_batches_are_a_warning(model, source, rows, warned):
    result = regtta.check(model, SHIFTED[:rows], source)
    assert result.ok
    assert bool(find(result, "batch size", "warning")) == warned
    if warned:
        assert "Variances of 15 samples have an error of 38%" in result.warnings[0]


def test_few_samples_for_many_directions_are_a_warning():
    model = small_models.mlp(width=80)
    source = regtta.collect(model, small_models.table(400).split(50))
    assert regtta.check(model, SHIFTED[:40], source, k=80).warnings == ()
    (warning,) = regtta.check(model, SHIFTED[:39], source, k=80).warnings
    assert "39 samples are few for the alignment of 80 directions" in warning


# --- features and BatchNorm -----------------------------------------------------------------------


def test_an_untrained_model_with_vanishing_features_is_a_warning():
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    result = regtta.check(models.mobilenet_v2(weights=None, num_classes=1), torch.rand(16, 3, 64, 64))
    (features,) = find(result, "features", "warning")
    assert "The features barely vary" in features
    (batch_norm,) = find(result, "BatchNorm", "warning")
    assert "BatchNorm has never seen data" in batch_norm
    assert result.ok


def test_features_that_do_not_vary_are_an_error():
    model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1))
    nn.init.constant_(model[1].bias, -100.0)
    result = regtta.check(model, SHIFTED)
    assert any("do not vary" in error for error in result.errors)


def test_batch_norm_with_invalid_statistics_is_an_error():
    model = small_models.mlp()
    model[1].running_var[2] = torch.nan
    result = regtta.check(model, SHIFTED)
    assert find(result, "BatchNorm", "error") == [
        "The running statistics of BatchNorm are not finite or have negative variances in '1'. Load weights that are "
        "not damaged, or train the model without diverging."
    ]


def test_batch_norm_without_running_statistics_is_a_warning():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 1)
    ).eval()
    result = regtta.check(model, SHIFTED)
    assert "1 of 1 BatchNorm layers have no running statistics" in " ".join(find(result, "parameters", "warning"))


def test_parameters_without_effect_are_named_and_not_among_the_moving():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.spare, self.head = nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 1)
            self.norm = nn.LayerNorm(4)

        def forward(self, x):
            self.spare(self.body(x))
            return self.head(self.norm(self.body(x)))

    torch.manual_seed(0)
    result = regtta.check(Unused(), SHIFTED)
    assert result.ok
    assert any("have no effect on the loss" in warning and "spare.weight" in warning for warning in result.warnings)
    assert result.moving == ("norm.weight", "norm.bias")


def test_a_model_that_cuts_the_gradient_is_an_error(source):
    class NoGradient(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = small_models.mlp(4), nn.Linear(4, 1)

        def forward(self, x):
            with torch.no_grad():
                return self.head(self.body(x))

    (error,) = regtta.check(NoGradient().eval(), SHIFTED).errors
    assert "torch.no_grad()" in error


def test_the_model_may_take_several_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.head = nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 1)

        def forward(self, x, scale):
            return self.head(self.norm(self.a(x) * scale))

    torch.manual_seed(0)
    batch = {"x": SHIFTED, "scale": torch.rand(64, 1), "y": torch.rand(64)}
    result = regtta.check(Two(), batch, regtta.collect(Two(), [batch]), method=regtta.SSA())
    assert "another model" in result.errors[0]
    model = Two()
    result = regtta.check(model, batch, regtta.collect(model, [batch]))
    assert result.ok, str(result)
    assert find(result, "preprocessing") == ["Not compared: the statistics do not describe inputs like these."]


def test_pooling_is_described():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.head = nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 1)

        def forward(self, x):
            return self.head(self.norm(self.a(x)))[:, -1]

    torch.manual_seed(0)
    result = regtta.check(Tokens(), torch.randn(32, 7, 5))
    assert result.head == "head[last]"
    assert find(result, "head") == ["The head is head[last] (Linear): 4 features, at the last position, 1 output."]


def test_it_works_inside_inference_mode(model, source):
    with torch.inference_mode():
        assert regtta.check(model, SHIFTED + 0.0, source).ok


def test_the_library_logs_again_after_a_check(model, source, caplog):
    regtta.check(model, SHIFTED, source, k=100)
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING, "regtta"):
        regtta.Adapter(model, "ssa", source, k=100)
    assert len(caplog.messages) == 1


# --- the result -----------------------------------------------------------------------------------


def test_the_report_and_the_dictionary_hold_all_findings(model, source):
    result = regtta.check(model, SHIFTED[:8], source)
    first, *lines = str(result).splitlines()
    assert first == "check of Sequential for ssa: 0 errors, 1 warning"
    assert lines == [f"{f.level:<9}{f.topic:<15}{f.message}" for f in result.findings]
    found = json.loads(json.dumps(result.to_dict()))
    assert found["ok"] is True
    assert found["findings"] == [{"level": f.level, "topic": f.topic, "message": f.message} for f in result.findings]
    assert found["moving"] == list(result.moving)
    assert found["cost"] == result.cost


def test_results_are_frozen():
    result = CheckResult("Net", "ssa", (Finding("warning", "a", "b"),))
    assert (result.ok, result.warnings, result.errors) == (True, ("b",), ())
    with pytest.raises(AttributeError):
        result.head = "fc"
