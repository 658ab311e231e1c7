import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of, source_of
from regtta.errors import OptionError
from regtta.methods.losses import subspace_distance
from regtta.methods.rsd import uncentred_bases


def orthonormal(*shape, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=shape))[0]


def test_sines_against_scipy():
    a, b = orthonormal(9, 4, seed=0), orthonormal(9, 4, seed=1)
    sines, mismatch = subspace_distance(torch.from_numpy(a), torch.from_numpy(b))
    assert sines.item() == pytest.approx(np.sin(subspace_angles(a, b)).sum(), rel=1e-8)
    p, _, qt = np.linalg.svd(a.T @ b)
    assert mismatch.item() == pytest.approx(np.linalg.norm(np.abs(p) - np.abs(qt.T)), rel=1e-8)


def test_source_bases_are_those_of_the_uncentred_features():
    points = np.random.default_rng(0).normal(1, 1, (50, 4)) * [4, 3, 2, 1]
    left = np.linalg.svd(points.T, full_matrices=False)[0]
    bases = uncentred_bases(source_of(points)).numpy()
    np.testing.assert_allclose(np.abs(left.T @ bases), np.eye(4), atol=1e-6)


def test_worked_example():
    # Source spread along the first axis most, then the second. The batch spans axes 1 and 3 (2 and 1 long):
    # of two bases one coincides (sine 0, up to the floor under the root) and one is at a right angle (sine 1).
    # P and Q are both the identity up to sign, so that the mismatch is 0.
    source = source_of(np.diag([9.0, 5.0, 0.1, 0.0])[[0, 0, 1, 1, 2, 3]] * np.array([[1], [-1], [1], [-1], [1], [1]]))
    features = torch.zeros(3, 4, dtype=torch.float64)
    features[0, 0], features[1, 2] = 2.0, 1.0
    rule = regtta.RSD(k=2).start(context_of(head_of([1.0] * 4), source))
    assert rule.update(batch_of(features)).item() == pytest.approx(1.0, abs=1e-6)
    heavy = regtta.RSD(k=2, mismatch=3.0).start(context_of(head_of([1.0] * 4), source))
    assert heavy.update(batch_of(features)).item() == pytest.approx(1.0, abs=1e-6)


def test_loss_against_numpy():
    model = small_models.mlp().double()
    source = regtta.collect(model, small_models.table(300).double().split(50))
    x = small_models.table(8, shift=1.0).double()
    step = regtta.Adapter(model, regtta.RSD(k=5, batch_norm="source"), source).adapt(x)
    with torch.no_grad():
        everything, batch = (model[:6](v).numpy() for v in (small_models.table(300).double(), x))
    us, ut = (np.linalg.svd(z.T, full_matrices=False)[0][:, :5] for z in (everything, batch))
    p, cosines, qt = np.linalg.svd(us.T @ ut)
    # |P| and |Q| do not depend on the signs of the bases.
    expected = np.sqrt(1 - cosines**2).sum() + 0.1 * np.linalg.norm(np.abs(p) - np.abs(qt.T))
    assert step.diagnostics.loss == pytest.approx(expected, rel=1e-5)


def test_as_many_bases_as_the_batch_has_samples():
    source = source_of(np.random.default_rng(0).normal(size=(50, 4)))
    rule = regtta.RSD(k=100).start(context_of(head_of([1.0] * 4), source))
    two = torch.randn(2, 4, dtype=torch.float64)
    expected = subspace_distance(uncentred_bases(source)[:, :2], torch.linalg.svd(two.T, full_matrices=False).U)
    assert rule.update(batch_of(two)).item() == pytest.approx((expected[0] + 0.1 * expected[1]).item())


def test_gradients_agree_with_finite_differences():
    source = source_of(np.random.default_rng(0).normal(size=(50, 4)))
    rule = regtta.RSD(k=2).start(context_of(head_of([1.0] * 4), source))
    features = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: rule.update(batch_of(z)), features)


def spread_source(width, dead=0, seed=0):
    """Return statistics of features with one variance per dimension; the last ``dead`` dimensions are 0."""
    points = np.random.default_rng(seed).normal(1, 1, (200, width)) * np.linspace(2, 0.5, width)
    points[:, width - dead :] = 0
    return source_of(points)


@pytest.mark.parametrize(
    ("rows", "width", "dead"), [(4, 4, 0), (9, 4, 0), (9, 5, 0), (30, 6, 0), (30, 9, 3), (7, 9, 4)]
)
def test_gradients_agree_with_finite_differences_if_the_batch_spans_the_space(rows, width, dead):
    rule = regtta.RSD().start(context_of(head_of([1.0] * 4), spread_source(width, dead)))
    torch.manual_seed(rows)
    alive = (
        torch.randn(rows, width - dead, dtype=torch.float64) * torch.linspace(1, 2, width - dead) + 1
    ).requires_grad_()
    nothing = torch.zeros(rows, dead, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: rule.update(batch_of(torch.cat([z, nothing], dim=1))), alive)
    features = torch.cat([alive.detach(), nothing], dim=1).requires_grad_()
    (gradient,) = torch.autograd.grad(rule.update(batch_of(features)), features)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("rows", "width", "dead", "expected"),
    [(9, 4, 0, 2), (9, 5, 0, 3), (2, 9, 0, 2), (30, 9, 0, 5), (30, 9, 4, 3), (100, 40, 0, 20)],
)
def test_number_of_compared_bases(rows, width, dead, expected, monkeypatch):
    compared = []
    monkeypatch.setattr(
        "regtta.methods.rsd.subspace_distance", lambda a, b: compared.append((a.shape, b.shape)) or (a.sum(), b.sum())
    )
    rule = regtta.RSD().start(context_of(head_of([1.0] * 4), spread_source(width, dead)))
    features = torch.randn(rows, width, dtype=torch.float64)
    features[:, width - dead :] = 0
    rule.update(batch_of(features))
    assert compared == [((width, expected),) * 2]


def test_gradients_of_equal_subspaces_are_finite():
    for width, count in ((4, 4), (4, 3), (5, 2)):
        basis = torch.from_numpy(orthonormal(width, count, seed=3))
        same = basis.clone().requires_grad_()
        sines, mismatch = subspace_distance(basis, same)
        assert sines.item() == pytest.approx(0, abs=1e-6)
        (gradient,) = torch.autograd.grad(sines + mismatch, same)
        assert gradient.isfinite().all()


def test_a_batch_with_more_samples_than_features_is_learned_from():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(300).split(50))
    adapter = regtta.Adapter(model, regtta.RSD(lr=1e-2), source)
    steps = list(adapter.run(small_models.table(64 * 40, shift=1.0, scale=1.5).split(64)))
    assert all(step.diagnostics.verdict.learned for step in steps)
    losses = [step.diagnostics.loss for step in steps]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_the_source_is_decomposed_once_for_all_adapters(monkeypatch):
    source, calls, eigh = spread_source(6), [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: calls.append(matrix.shape) or eigh(matrix))
    rules = [regtta.RSD(k=k).start(context_of(head_of([1.0] * 4), source)) for k in (2, 3, 2)]
    assert calls == [(6, 6)]
    assert torch.equal(rules[0].bases, rules[1].bases[:, :2])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_degenerate_batches_are_skipped(monkeypatch):
    model = small_models.mlp()
    with torch.no_grad():  # features of rank 1: one line is no nearer to itself than any other
        model[4].weight[1:], model[4].bias[1:] = 0, -1
    source = regtta.collect(model, small_models.table(300).split(50))
    adapter = regtta.Adapter(model, regtta.RSD(k=5), source)
    steps = list(adapter.run(small_models.table(60, shift=1.0).split(12)))
    assert {step.diagnostics.verdict.reason for step in steps} == {"the features span no more than one direction"}
    assert torch.equal(
        adapter.predict(small_models.table(5)),
        regtta.Adapter(model, regtta.NoAdaptation()).predict(small_models.table(5)),
    )

    def diverges(*_args, **_kwargs):
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(torch.linalg, "svd", diverges)
    verdict = adapter.adapt(small_models.table(8)).diagnostics.verdict
    assert verdict.reason == "the batch's singular value decomposition did not converge"


def test_invalid_options():
    with pytest.raises(OptionError, match="mismatch to be a number of at least 0"):
        regtta.RSD(mismatch=-1)
    assert regtta.RSD(mismatch=0).mismatch == 0
    with pytest.raises(OptionError, match="k to be a whole number"):
        regtta.RSD(k=0)
