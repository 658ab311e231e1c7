import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn

from regtta.errors import BatchError
from regtta.selection import CorrectedModel, OutputCorrection, fit_correction
from regtta.selection.output_correction import correct_head


def design_of(predictions: np.ndarray, kind: str) -> np.ndarray:
    columns = [np.ones_like(predictions)]
    if kind == "affine":
        columns.append((predictions - predictions.mean()) / predictions.std())
    return np.stack(columns, axis=1)


def ridge(design: np.ndarray, residuals: np.ndarray, prior: float) -> np.ndarray:
    return Ridge(alpha=prior, fit_intercept=False).fit(design, residuals).coef_


@pytest.mark.parametrize("kind", ["offset", "affine"])
@pytest.mark.parametrize("prior", [0.5, 1.0])
def test_the_fit_and_its_leave_one_out_predictions_are_those_of_explicit_refits(kind, prior):
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(24, 2))
    targets = 2 + 0.5 * predictions + rng.normal(size=(24, 2))
    correction, held_out = fit_correction(torch.tensor(predictions), torch.tensor(targets), kind, prior=prior)
    for j in range(2):
        design, residuals = design_of(predictions[:, j], kind), targets[:, j] - predictions[:, j]
        whole = predictions[:, j] + design @ ridge(design, residuals, prior)
        applied = correction.apply(torch.tensor(predictions))[:, j].numpy()
        np.testing.assert_allclose(applied, whole, rtol=1e-10)
        for i in range(24):
            others = np.arange(24) != i
            theta = ridge(design[others], residuals[others], prior)
            assert float(held_out[i, j]) == pytest.approx(predictions[i, j] + design[i] @ theta, rel=1e-9)


def test_the_offset_is_the_shrunken_mean_residual():
    targets = torch.tensor([[3.0], [5.0], [7.0], [9.0]])
    correction, _ = fit_correction(torch.zeros(4, 1), targets, "offset")
    assert correction.offset == pytest.approx((6.0 * 4 / 5,))
    assert correction.scale == (1.0,)


def test_constant_predictions_are_corrected_by_an_offset_alone():
    correction, held_out = fit_correction(torch.full((10, 1), 2.0), torch.arange(10.0)[:, None], "affine")
    assert correction.scale == (1.0,)
    assert bool(held_out.isfinite().all())


@pytest.mark.parametrize(("shape", "outputs"), [((5,), 1), ((5, 1), 1), ((5, 2), 2)])
def test_shape_and_data_type_of_predictions_are_kept(shape, outputs):
    corrected = OutputCorrection((1.0,) * outputs, (3.0,) * outputs).apply(torch.ones(shape))
    assert corrected.shape == shape
    assert corrected.dtype == torch.float32
    assert bool((corrected == 4.0).all())


def test_predictions_of_another_number_of_outputs_are_an_error():
    with pytest.raises(BatchError, match="of 1 output"):
        OutputCorrection((1.0,), (1.0,)).apply(torch.ones(4, 2))


@pytest.mark.parametrize("bias", [True, False])
def test_the_head_takes_the_correction_into_its_weights(bias):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=bias))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    correction, x = OutputCorrection((1.0, -2.0), (0.5, 3.0)), torch.randn(6, 3)
    changed = correct_head(model, "1", correction)
    assert changed is not None
    torch.testing.assert_close(changed(x), correction.apply(model(x)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_heads_that_cannot_take_the_correction_are_left_to_the_wrapper():
    correction = OutputCorrection((1.0,), (2.0,))
    assert correct_head(nn.Sequential(nn.Linear(3, 2)), "0", correction) is None  # two rows for one output
    conv = nn.Sequential(nn.Conv1d(3, 1, 1), nn.Flatten())
    assert correct_head(conv, "0", correction) is None
    spectral = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 1)))
    assert correct_head(spectral, "0", correction) is None


def test_the_wrapper_corrects_the_selected_output():
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, shift: float = 0.0) -> dict[str, torch.Tensor]:
            return {"mean": x.sum(1) + shift, "other": x}

    wrapped = CorrectedModel(Two(), OutputCorrection((1.0,), (2.0,)), "mean")
    assert torch.equal(wrapped(torch.ones(2, 3), shift=1.0), torch.full((2,), 9.0))
    assert set(wrapped.state_dict()) == {"offset", "scale"}
