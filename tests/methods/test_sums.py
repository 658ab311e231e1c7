import pytest
import torch

import regtta
from helpers import small_models
from regtta.errors import BatchError, OptionError, StatisticsError
from regtta.methods import method_options


def adapter_of(method, outputs=3):
    model = small_models.cnn(outputs)
    return regtta.Adapter(model, method, regtta.collect(model, small_models.images(300).split(50)))


def test_the_loss_of_a_sum_is_the_weighted_sum():
    x = small_models.images(20, shift=0.3)
    tent, ssa = (adapter_of(m).adapt(x).diagnostics.loss for m in (regtta.Tent(), regtta.SSA(k=3)))
    both = adapter_of(regtta.create_method("tent+0.25*ssa", k=3)).adapt(x).diagnostics.loss
    assert both == pytest.approx(tent + 0.25 * ssa, rel=1e-5)


def test_a_method_added_to_itself_has_twice_the_gradient():
    x = small_models.images(20, shift=0.3)
    one = adapter_of(regtta.SSA(k=3, optimizer="sgd", lr=2e-4))
    two = adapter_of(regtta.create_method("ssa+ssa", k=3, optimizer="sgd", lr=1e-4))
    for adapter in (one, two):
        adapter.adapt(x)
    torch.testing.assert_close(one.predict(x), two.predict(x))


def test_names_weights_and_options_are_parsed():
    both = regtta.create_method("tent + 0.5*ssa", k=25, lr=1e-4, weighting=False)
    assert both == regtta.Sum(
        terms=(regtta.Tent(lr=1e-4), regtta.SSA(k=25, lr=1e-4, weighting=False)), weights=(1.0, 0.5), lr=1e-4
    )
    assert both.name == "tent+ssa"
    assert both.needs_source
    assert not both.takes_targets
    assert regtta.create_method("ttt+ssa").optimizer == "sgd"
    assert regtta.create_method("ttt+ssa").trainable == "extractor"
    assert regtta.create_method("oracle+ssa").takes_targets
    assert isinstance(regtta.create_method("ssa"), regtta.SSA)
    assert method_options("tent+ssa", ["k=3", "lr=0.1"]) == {"k": 3, "lr": 0.1}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("tent+sssa", {}, "Did you mean 'ssa'"),
        ("tent+", {}, "the method to be one of"),
        ("x*tent+ssa", {}, r"Expected weight\*method"),
        ("tent+0*ssa", {}, "a weight to be a number above 0"),
        ("tent+ssa", {"kk": 1}, r"tent\+ssa has no option 'kk'.*Did you mean 'k'"),
        ("source+ssa", {}, "source has no loss to minimise"),
        ("ssa+source", {}, "NoAdaptation has no loss to minimise"),
        ("2*ssa", {}, "two terms or more"),
    ],
)
def test_invalid_sums(text, options, message):
    with pytest.raises(OptionError, match=message):
        regtta.create_method(text, **options)


def test_requirements_of_a_sum_are_those_of_its_terms():
    with pytest.raises(StatisticsError):
        regtta.Adapter(small_models.cnn(3), regtta.create_method("tent+ssa"))
    with pytest.raises(BatchError, match=r"oracle\+ssa learns from labels"):
        adapter_of(regtta.create_method("oracle+ssa", k=3)).adapt(small_models.images(8))


def test_statistics_of_all_terms_are_collected():
    model = small_models.cnn()
    both = regtta.create_method("ssa+feature_restoration", k=3)
    source = regtta.collect(model, small_models.images(300).split(50), methods=[both])
    alone = regtta.collect(model, small_models.images(300).split(50), methods=[regtta.FeatureRestoration()])
    assert source.extras.keys() == alone.extras.keys()
    assert source.extras
    assert regtta.Adapter(model, both, source).adapt(small_models.images(20)).diagnostics.verdict.learned


def test_a_sum_resumes_exactly(tmp_path):
    branch = torch.nn.Linear(10, 4)
    method = regtta.Sum(terms=(regtta.TTT(branch=branch), regtta.SSA(k=3)))
    whole, first, second = (adapter_of(method) for _ in range(3))
    stream = small_models.images(60, shift=0.2).split(10)
    steps = list(whole.run(stream))
    list(first.run(stream[:3]))
    torch.save(first.state_dict(), tmp_path / "s.pt")
    second.load_state_dict(torch.load(tmp_path / "s.pt", weights_only=True))
    for step, x in zip(steps[3:], stream[3:], strict=True):
        assert torch.equal(second.adapt(x).predictions, step.predictions)


def test_a_sum_skips_if_a_term_skips(monkeypatch):
    def diverges(*_args, **_kwargs):
        raise torch.linalg.LinAlgError("did not converge")

    adapter = adapter_of(regtta.create_method("ssa+rsd", k=3))
    monkeypatch.setattr(torch.linalg, "svd", diverges)
    step = adapter.adapt(small_models.images(8))
    assert "did not converge" in step.diagnostics.verdict.reason
