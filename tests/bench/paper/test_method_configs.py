import dataclasses

import pytest
import torch
from torch import nn

from regtta import Adapter, collect
from regtta.errors import OptionError, RegttaError
from regtta.methods import METHODS, NoAdaptation, Sum, VarianceMinimization
from regtta_bench.paper import TABLE_LABELS, paper_table, table_numbers
from regtta_bench.paper.method_configs import READINGS, MethodConfig, depends_on_order, make_method_config, with_seed
from regtta_bench.paper.settings import SETTINGS

SVHN, CALIFORNIA = SETTINGS["svhn"], SETTINGS["california"]
GRADIENT = ("feature_alignment", "ssa", "feature_restoration", "rsd", "oracle")
OF_THE_PAPER = sorted({n.method for label in TABLE_LABELS for n in table_numbers(paper_table(label)) if n.method})


def running_means(name, setting):
    """The BatchNorm statistics of a small model before and after one batch of the method of a setting."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 12, bias=False), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 1)).eval()
    source = collect(model, [torch.randn(200, 5)], methods=[METHODS["feature_restoration"]()])
    method = make_method_config(setting, name, {"k": 2} if name in ("ssa", "feature_alignment") else {}).method
    adapter = Adapter(model, method, source)
    targets = torch.zeros(4, 1) if method.takes_targets else None
    step = adapter.adapt(torch.randn(4, 5) + 3, targets)
    assert step.diagnostics.verdict.learned
    return model[1].running_mean, adapter.export()[1].running_mean


@pytest.mark.parametrize("name", GRADIENT)
def test_gradient_methods_keep_source_batch_norm_on_california_only(name):
    assert torch.equal(*running_means(name, CALIFORNIA))
    assert not torch.equal(*running_means(name, SVHN))


def test_bn_adapt_updates_batch_norm_on_california_too():
    for setting in (CALIFORNIA, SVHN):
        assert not torch.equal(*running_means("bn_adapt", setting))


@pytest.mark.parametrize("name", SETTINGS)
def test_k_is_that_of_the_setting_and_not_clipped_at_the_rank(name):
    for method in ("ssa", "feature_alignment"):
        made = make_method_config(SETTINGS[name], method).method
        assert (made.k, made.clip) == (10 if name == "california" else 100, False)


def test_ssa_has_the_options_of_the_papers_text():
    made = make_method_config(SVHN, "ssa").method
    chosen = (made.lr, made.optimizer, made.trainable, made.metric, made.weighting, made.unbiased, made.batch_norm)
    assert chosen == (0.001, "adam", "affine", "kl", True, True, "batch")


def test_baselines_have_the_options_of_the_papers_appendix():
    restoration = make_method_config(SVHN, "feature_restoration").method
    assert (restoration.bins, restoration.temperature, restoration.lr) == (8, 0.01, 0.0001)
    variance = make_method_config(SVHN, "variance_minimization").method
    assert (variance.views, variance.lr, variance.optimizer, variance.trainable) == (32, 0.001, "adam", "extractor")
    ttt = make_method_config(SVHN, "ttt").method
    assert (ttt.optimizer, ttt.lr, ttt.trainable) == ("sgd", 0.001, "extractor")
    oracle, ssa = make_method_config(SVHN, "oracle").method, make_method_config(SVHN, "ssa").method
    same = ("lr", "optimizer", "trainable", "batch_norm", "steps")
    assert [getattr(oracle, name) for name in same] == [getattr(ssa, name) for name in same]


@pytest.mark.parametrize("name", SETTINGS)
def test_rsd_has_as_many_bases_as_a_batch_has_samples(name):
    method_config = make_method_config(SETTINGS[name], "rsd")
    assert method_config.method.k >= method_config.batch_size


def test_classifiers_use_no_weighting_and_the_oracle_uses_cross_entropy():
    made = {
        name: make_method_config(SVHN, name, task="classification")
        for name in ("source", "tent", "ssa", "tent+ssa", "oracle")
    }
    assert {method_config.objective for method_config in made.values()} == {"classification"}
    assert all(method_config.paired for method_config in made.values())
    assert made["ssa"].method.weighting is False
    assert made["oracle"].method.task == "classification"
    assert make_method_config(SVHN, "oracle").method.task == "regression"
    total = made["tent+ssa"].method
    assert isinstance(total, Sum)
    assert total.terms == (made["tent"].method, made["ssa"].method)
    assert total.weights == (1.0, 1.0)
    assert (total.lr, total.optimizer, total.trainable) == (0.001, "adam", "affine")


def test_only_ttt_and_dann_have_their_own_source_models():
    own = {
        name: make_method_config(SVHN, name).objective
        for name in OF_THE_PAPER
        if not make_method_config(SVHN, name).paired
    }
    assert own == {"ttt": "rotation", "dann": "dann"}
    shared = {make_method_config(SVHN, name).objective for name in OF_THE_PAPER if name not in own}
    assert shared == {"regression"}


def test_dann_does_not_adapt_at_test_time():
    assert make_method_config(SVHN, "dann") == MethodConfig(NoAdaptation(), "dann", 64)


def test_the_batch_size_is_64_by_default():
    assert {make_method_config(SVHN, name).batch_size for name in OF_THE_PAPER} == {64}
    chosen = make_method_config(SVHN, "ssa", {"batch_size": 8, "lr": 0.01})
    assert (chosen.batch_size, chosen.method) == (8, make_method_config(SVHN, "ssa", {"lr": 0.01}).method)
    assert make_method_config(SVHN, "dann", {"batch_size": 16}).batch_size == 16


def test_given_options_override_the_defaults():
    made = make_method_config(CALIFORNIA, "ssa", {"k": 25, "clip": True, "batch_norm": "batch"}).method
    assert (made.k, made.clip, made.batch_norm) == (25, True, "batch")
    assert make_method_config(SVHN, "ssa", {"weighting": True}, task="classification").method.weighting is True
    assert make_method_config(SVHN, "feature_alignment", {"k": None}).method.k is None


def test_california_has_three_readings():
    made = {name: make_method_config(CALIFORNIA, "ssa", options).method for name, options in READINGS.items()}
    seen = {name: (m.trainable, m.lr, m.batch_norm, m.k) for name, m in made.items()}
    assert seen == {
        "text": ("affine", 1e-3, "source", 10),
        "released": ("extractor", 1e-4, "source", 10),
        "affine 1e-4": ("affine", 1e-4, "source", 10),
    }


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("ssa", {"batch_size": "8"}, "the batch size to be a whole number of at least 1, found '8'"),
        ("ssa", {"batch_size": 6.4}, "the batch size to be a whole number of at least 1, found 6.4"),
        ("ssa", {"metrik": "kl"}, "Did you mean 'metric'"),
        ("ssa", {"k": 0}, "k to be a whole number"),
        ("tent+source", {}, "cannot be part of a sum"),
    ],
)
def test_invalid_options_raise(name, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        make_method_config(SVHN, name, options)


def test_an_unknown_method_raises():
    with pytest.raises(RegttaError, match="ssaa"):
        make_method_config(SVHN, "ssaa")


@pytest.mark.parametrize("name", ["variance_minimization", "ttt"])
def test_the_seed_is_passed_to_random_methods(name):
    method_config = make_method_config(SVHN, name)
    seeded = with_seed(method_config, 7)
    assert seeded.method.seed == 7
    assert dataclasses.replace(seeded, method=method_config.method) == method_config
    assert dataclasses.replace(seeded.method, seed=method_config.method.seed) == method_config.method


def test_the_seed_is_passed_to_random_terms_of_a_sum():
    terms = with_seed(make_method_config(SVHN, "variance_minimization+ssa"), 7).method.terms
    assert [term.seed for term in terms if isinstance(term, VarianceMinimization)] == [7]


@pytest.mark.parametrize("name", sorted({*OF_THE_PAPER, "feature_alignment"} - {"variance_minimization", "ttt"}))
def test_deterministic_methods_ignore_the_seed(name):
    method_config = make_method_config(SVHN, name)
    assert with_seed(method_config, 7) == method_config


def test_only_methods_that_never_learn_are_independent_of_the_order():
    fixed = {name for name in OF_THE_PAPER if not depends_on_order(make_method_config(SVHN, name))}
    assert fixed == {"source", "dann"}


def test_method_configs_compare_by_value():
    method_configs = {make_method_config(SVHN, name) for name in OF_THE_PAPER}
    assert len(method_configs) == len(OF_THE_PAPER)
    assert make_method_config(SVHN, "ssa") in method_configs
