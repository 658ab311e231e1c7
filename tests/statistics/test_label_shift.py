"""Evidence of label shifts, for models whose shifts are known in closed form."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import BatchError
from regtta.statistics.label_shift import OUTPUT_TOLERANCE, evidence_from_coordinates, label_shift_evidence
from regtta.statistics.source import SourceStatistics
from regtta.statistics.whitening import Whitening

D = 12


class LinearGaussian:
    """Model with labels t ~ N(0, 1) and features z = a t + L ε, whose least-squares head and shifts are known."""

    def __init__(self, outputs: int = 1, seed: int = 0) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        self.loadings = 0.4 * torch.randn(D, outputs, generator=self.draw, dtype=torch.float64)
        # Every direction carries more than a hundredth of the variance, so that none is left out of the whitening.
        self.mixing = torch.eye(D).double() + 0.1 * torch.randn(D, D, generator=self.draw, dtype=torch.float64)
        self.covariance = self.loadings @ self.loadings.T + self.mixing @ self.mixing.T
        self.head = nn.Linear(D, outputs).double()
        with torch.no_grad():
            self.head.weight.copy_(torch.linalg.solve(self.covariance, self.loadings).T)
        rows = self.sample(40_000)
        self.source = regtta.collect(nn.Sequential(self.head), [rows])

    def sample(self, count: int, label_mean: float = 0.0) -> torch.Tensor:
        labels = label_mean + torch.randn(count, self.loadings.shape[1], generator=self.draw, dtype=torch.float64)
        noise = torch.randn(count, D, generator=self.draw, dtype=torch.float64)
        return labels @ self.loadings.T + noise @ self.mixing.T

    def evidence(self, features: torch.Tensor):
        return label_shift_evidence(self.source, self.head, features)


@pytest.fixture(scope="module")
def model():
    return LinearGaussian()


@pytest.mark.parametrize("mean", [-1.5, -0.75, 0.75, 1.5])
def test_a_pure_label_shift_moves_the_outputs_and_nothing_else(model, mean):
    found = model.evidence(model.sample(4000, mean))
    assert found.verdict == "labels"
    # The standardised output moves by mean · √R², R² being the share of the label's variance that the head explains.
    r2 = float(model.head.weight.detach() @ model.loadings)
    assert found.output_shift == pytest.approx(abs(mean) * math.sqrt(r2), abs=0.05)
    assert found.other_shift < 0.05
    assert not found.others_moved


def test_an_offset_uncorrelated_with_the_output_is_an_input_shift(model):
    # Moving z by Σ v with w · Σ v = 0 does not change the mean of the output.
    direction = torch.randn(D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weight = model.head.weight.detach()[0]
    shift = model.covariance @ direction
    shift -= weight * (weight @ shift) / (weight @ weight)
    shift /= math.sqrt(float(shift @ torch.linalg.solve(model.covariance, shift)))
    found = model.evidence(model.sample(4000) + 3 * shift)
    assert found.verdict == "inputs"
    # The whitened means have length 3 in D − 1 directions.
    assert found.other_shift == pytest.approx(3 / math.sqrt(D - 1), rel=0.1)
    assert found.output_shift < 0.1


def test_both_shifts_at_once_are_unclear(model):
    direction = torch.randn(D, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    direction *= torch.sign(model.head.weight[0] @ direction).detach()
    assert model.evidence(model.sample(2000, 1.0) + 2 * direction).verdict == "both or unclear"


@pytest.mark.parametrize("count", [8, 64, 1024])
def test_false_positives_without_a_shift_are_rare(model, count):
    verdicts = [model.evidence(model.sample(count)).verdict for _ in range(100)]
    assert verdicts.count("none") >= 88


def test_several_outputs(model):
    several = LinearGaussian(outputs=3, seed=5)
    found = several.evidence(several.sample(3000, 1.0))
    assert (found.verdict, found.dimensions) == ("labels", D)
    assert several.evidence(several.sample(3000)).verdict == "none"


def test_evidence_does_not_depend_on_sample_order_or_head_scale(model):
    rows = model.sample(500, 0.6)
    found = model.evidence(rows)
    mixed = model.evidence(rows[torch.randperm(500, generator=model.draw)])
    scaled = nn.Linear(D, 1).double()
    scaled.load_state_dict({name: -7 * value for name, value in model.head.state_dict().items()})
    others = (mixed, label_shift_evidence(model.source, scaled, rows))
    for other in others:
        assert other.verdict == found.verdict
        assert other.output_shift == pytest.approx(found.output_shift, rel=1e-9)
        assert other.prominence == pytest.approx(found.prominence, rel=1e-6)


def test_evidence_does_not_depend_on_the_coordinates_of_the_features(model):
    """Features, statistics and head are rotated together, which whitened sizes do not depend on."""
    rotation = torch.linalg.qr(torch.randn(D, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    turned = nn.Linear(D, 1).double()
    with torch.no_grad():
        turned.weight.copy_(model.head.weight @ rotation.T)
    source = SourceStatistics(
        mean=rotation @ model.source.mean,
        variances=model.source.variances,
        basis=rotation @ model.source.basis,
        feature_variances=(rotation @ model.source.covariance() @ rotation.T).diagonal(),
        count=model.source.count,
        head="0",
        fingerprint="",
    )
    rows = model.sample(300, 0.7)
    found, other = model.evidence(rows), label_shift_evidence(source, turned, rows @ rotation.T)
    assert other.output_shift == pytest.approx(found.output_shift, rel=1e-9)
    assert other.other_shift == pytest.approx(found.other_shift, rel=1e-9)


def test_non_finite_rows_are_ignored(model):
    rows = model.sample(200, 1.0)
    spoilt = torch.cat([rows, torch.full((3, D), torch.nan, dtype=torch.float64)])
    assert model.evidence(spoilt) == model.evidence(rows)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_samples_raise(model, count):
    with pytest.raises(BatchError, match=f"two or more finite samples to detect a shift, found {count}"):
        model.evidence(model.sample(2)[:count])


def test_two_samples_give_a_verdict(model):
    assert model.evidence(model.sample(2)).verdict in ("none", "inputs", "labels", "both or unclear")


def test_without_other_directions_the_verdict_is_unclear():
    rows = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    head = nn.Linear(1, 1)
    source = regtta.collect(nn.Sequential(head), [rows])
    assert label_shift_evidence(source, head, rows + 1).verdict == "both or unclear"
    assert label_shift_evidence(source, head, rows).verdict == "none"


def test_outputs_within_their_tolerance_have_not_moved(model):
    whitening = Whitening.from_statistics(model.source, model.head)
    centred = torch.randn(100_000, D, generator=model.draw, dtype=torch.float64)
    centred -= centred.mean(dim=0)
    for size, moved in ((OUTPUT_TOLERANCE * 0.8, False), (OUTPUT_TOLERANCE * 1.2, True)):
        rows = centred + size * whitening.outputs[:, 0]
        assert evidence_from_coordinates(rows, whitening, 10**6).outputs_moved == moved


def test_a_nonlinear_model_in_single_precision():
    net = small_models.mlp()
    source = regtta.collect(net, small_models.table(600).split(50))
    features = net[:6](small_models.table(200, seed=9)).detach()
    assert label_shift_evidence(source, net[6], features).verdict == "none"


def test_every_verdict_has_a_sentence_and_a_dict(model):
    found = model.evidence(model.sample(100))
    said = {
        v: dataclasses.replace(found, verdict=v).sentence() for v in ("none", "inputs", "labels", "both or unclear")
    }
    assert len({text.split(":")[0] for text in said.values()}) == 4
    assert all(f"{found.output_shift:.2f} source standard deviations" in text for text in said.values())
    assert found.to_dict()["verdict"] == found.verdict
