import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of, source_of
from regtta.errors import OptionError
from regtta.methods.dare_gram import leading_count
from regtta.methods.losses import column_cosines

RNG = np.random.default_rng(0)
POINTS = RNG.normal(1, 1, (60, 4)) * [4, 3, 2, 1]


def loss_by_numpy(batch, whole, explained=0.99, angle=0.05, scale=0.001):
    """Return the loss from the Gram matrices, by numpy's eigenvalues."""
    inverses, spectra, counts = [], [], []
    for points in (batch, whole):
        values, vectors = np.linalg.eigh(points.T @ points / len(points))
        spectra.append((values[::-1], vectors[:, ::-1]))
        counts.append(int((np.cumsum(values[::-1]) < explained * values.sum()).sum()) + 1)
    k = min(max(counts), len(batch))
    for values, vectors in spectra:
        inverses.append(vectors[:, :k] @ np.diag(1 / values[:k]) @ vectors[:, :k].T)
    a, b = inverses
    cosines = (a * b).sum(0) / (np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0))
    distance = np.linalg.norm(spectra[0][0][:k] - spectra[1][0][:k]) / k
    return angle * (1 - cosines).mean() + scale * distance


def rule_of(points=POINTS, **options):
    return regtta.DareGram(**options).start(context_of(head_of([1.0] * 4), source_of(points)))


def test_worked_example():
    # E[z zᵀ] of the source is diag(8, 2, 0, 0), that of the batch diag(2, 8, 0, 0): both inverses are diagonal, so that
    # their two columns that are not 0 are parallel. The sorted eigenvalues agree, and the loss is 0.
    source = np.array([[4.0, 0, 0, 0], [-4.0, 0, 0, 0], [0, 2.0, 0, 0], [0, -2.0, 0, 0]])
    swapped = torch.from_numpy(source[:, [1, 0, 2, 3]])
    assert rule_of(source).update(batch_of(swapped)).item() == pytest.approx(0, abs=1e-12)
    # Twice as large: parallel still, eigenvalues 32 and 8 against 8 and 2, ‖(24, 6)‖ / 2 = 12.37.
    assert rule_of(source, scale=1.0).update(batch_of(2 * torch.from_numpy(source))).item() == pytest.approx(
        612**0.5 / 2
    )
    # Turned by 45° both columns change their direction: G⁺ = [[5, −3], [−3, 5]]/16 against diag(1/8, 1/2).
    turn = np.eye(4)
    turn[:2, :2] = np.array([[1, -1], [1, 1]]) / np.sqrt(2)
    loss = rule_of(source, angle=1.0, scale=0.0).update(batch_of(torch.from_numpy(source @ turn.T)))
    assert loss.item() == pytest.approx(1 - 5 / np.sqrt(34))


@pytest.mark.parametrize("explained", [0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("rows", [3, 20])
def test_loss_against_numpy(explained, rows):
    batch = np.random.default_rng(rows).normal(0.5, 2, (rows, 4))
    found = rule_of(explained=explained, angle=0.7, scale=0.2).update(batch_of(torch.from_numpy(batch)))
    assert found.item() == pytest.approx(loss_by_numpy(batch, POINTS, explained, 0.7, 0.2), rel=1e-8)


def test_loss_of_a_model_against_numpy():
    model = small_models.mlp().double()
    data, x = small_models.table(300).double(), small_models.table(40, shift=1.0).double()
    step = regtta.Adapter(model, regtta.DareGram(batch_norm="source"), regtta.collect(model, data.split(50))).adapt(x)
    with torch.no_grad():
        whole, batch = (model[:6](v).numpy() for v in (data, x))
    alive = whole.any(axis=0)
    assert step.loss == pytest.approx(loss_by_numpy(batch[:, alive], whole[:, alive]), rel=1e-6)


@pytest.mark.parametrize("rows", [3, 4, 12])
def test_gradients_agree_with_finite_differences(rows):
    features = torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(rows)) + 0.5
    rule = rule_of(explained=0.97, angle=1.0, scale=1.0)
    assert torch.autograd.gradcheck(lambda z: rule.update(batch_of(z)), features.requires_grad_())


def test_gradients_at_repeated_eigenvalues_are_finite_and_right():
    # Two equal pairs of singular values: the pseudo-inverse does not depend on the choice of their vectors.
    rule = rule_of(explained=0.9999, angle=1.0, scale=0.0)
    features = torch.diag(torch.tensor([3.0, 3.0, 2.0, 2.0], dtype=torch.float64)).repeat(2, 1).requires_grad_()
    loss = rule.update(batch_of(features))
    (gradient,) = torch.autograd.grad(loss, features)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 1e-3
    assert torch.autograd.gradcheck(lambda z: rule.update(batch_of(z)), features)


def test_features_that_are_zero_are_left_out():
    points = POINTS.copy()
    points[:, 3] = 0
    batch = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch[:, 3] = 0
    expected = loss_by_numpy(batch[:, :3].numpy(), points[:, :3])
    assert rule_of(points).update(batch_of(batch)).item() == pytest.approx(expected, rel=1e-8)
    batch[:, 2] = 0  # a feature that died on the target
    features = batch.requires_grad_()
    loss = rule_of(points).update(batch_of(features))
    (gradient,) = torch.autograd.grad(loss, features)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_column_cosines_against_numpy():
    a, b = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3))
    expected = [a[:, j] @ b[:, j] / np.linalg.norm(a[:, j]) / np.linalg.norm(b[:, j]) for j in range(3)]
    np.testing.assert_allclose(column_cosines(torch.from_numpy(a), torch.from_numpy(b)), expected, rtol=1e-12)


def test_leading_count_reaches_the_fraction():
    values = torch.tensor([5.0, 3.0, 1.5, 0.5])
    assert [leading_count(values, fraction) for fraction in (0.4, 0.5, 0.51, 0.8, 0.95, 0.999)] == [1, 1, 2, 2, 3, 4]


def test_degenerate_batches_are_skipped(monkeypatch):
    assert (
        rule_of().update(batch_of(torch.zeros(5, 4, dtype=torch.float64))).reason == "all features of the batch are 0"
    )

    def diverges(*_args, **_kwargs):
        raise torch.linalg.LinAlgError("did not converge")

    rule = rule_of()
    monkeypatch.setattr(torch.linalg, "svd", diverges)
    reason = rule.update(batch_of(torch.ones(5, 4, dtype=torch.float64))).reason
    assert reason == "the batch's singular value decomposition did not converge"


def test_invalid_options():
    for wrong in ({"explained": 1.0}, {"angle": 0}, {"scale": -1}):
        with pytest.raises(OptionError, match=f"{next(iter(wrong))} to be a number"):
            regtta.DareGram(**wrong)
