from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from torch import nn

from regtta.errors import BatchError
from regtta.selection import CorrectedModel, OutputCorrection, fit_correction
from regtta.selection.output_correction import correct_head


def fit(kind: str, predictions: np.ndarray, targets: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the least-squares correction as a function of predictions, by scikit-learn."""
    if kind == "offset":
        model = LinearRegression().fit(np.zeros((len(predictions), 1)), targets - predictions)
        return lambda outputs: outputs + model.predict(np.zeros((len(outputs), 1)))
    model = LinearRegression().fit(predictions[:, None], targets)
    return lambda outputs: model.predict(outputs[:, None])


@pytest.mark.parametrize("kind", ["offset", "affine"])
@pytest.mark.parametrize("distance", [0.0, 1e4])
def test_the_fit_and_its_leave_one_out_predictions_are_those_of_explicit_refits(kind, distance):
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(24, 2)) + distance
    targets = 2 + 0.5 * predictions + rng.normal(size=(24, 2))
    correction, held_out = fit_correction(torch.tensor(predictions), torch.tensor(targets), kind)
    applied = correction.apply(torch.tensor(predictions)).numpy()
    for j in range(2):
        whole = fit(kind, predictions[:, j], targets[:, j])(predictions[:, j])
        np.testing.assert_allclose(applied[:, j], whole, rtol=1e-9)
        for i in range(24):
            others = np.arange(24) != i
            refit = fit(kind, predictions[others, j], targets[others, j])
            assert float(held_out[i, j]) == pytest.approx(refit(predictions[[i], j])[0], rel=1e-9)


def test_a_sample_that_alone_determines_the_scale_is_not_corrected_by_its_own_label():
    predictions, targets = torch.zeros(10, 1), torch.arange(10.0)[:, None]
    predictions[3] = 1.0
    _, held_out = fit_correction(predictions, targets, "affine")
    assert bool(held_out.isfinite().all())


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
