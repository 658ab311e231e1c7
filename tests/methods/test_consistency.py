import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of, source_of
from regtta.errors import BatchError, OptionError, StatisticsError
from regtta.models import Forward, shift_pixels


def test_worked_example():
    # Outputs w·z with w = (1, 0, 0, 0) have variance 4 on the source. The predictions are 3 for both shifted images, 1
    # and 2 for the images themselves: ((3 − 1)² + (3 − 2)²) / 2 / 4 = 0.625.
    source = source_of([[2.0, 1, 0, 0], [-2.0, 0, 0, 0], [0.0, 0, 1, 0]])
    rule = regtta.Consistency().start(context_of(head_of([1.0, 0.0, 0.0, 0.0]), source))
    outputs = torch.tensor([[1.0], [2.0]]).double()
    images = torch.rand(2, 3, 8, 8)
    batch = batch_of(
        torch.zeros(2, 4),
        outputs=outputs,
        inputs=images,
        forward=lambda x: Forward(x, torch.full((2, 1), 3.0).double()),
    )
    assert rule.update(batch).item() == pytest.approx(0.625)


@pytest.mark.parametrize("outputs", [1, 3])
def test_loss_against_numpy(outputs):
    model = small_models.cnn(outputs).double()
    data, x = small_models.images(90).double(), small_models.images(20, shift=0.5, seed=5).double()
    source = regtta.collect(model, data.split(30))
    step = regtta.Adapter(model, regtta.Consistency(batch_norm="source", seed=3), source).adapt(x)
    shifted = shift_pixels(x, 2, torch.Generator().manual_seed(3))
    with torch.no_grad():
        plain, moved, whole = (model(v).numpy() for v in (x, shifted, data))
    expected = ((moved - plain) ** 2 / whole.var(0, ddof=1)).mean()
    assert step.loss == pytest.approx(expected, rel=1e-9)


def test_the_unit_of_the_labels_does_not_matter():
    losses = []
    for unit in (1.0, 1000.0):
        model = small_models.cnn().double()
        with torch.no_grad():
            model[9].weight.mul_(unit)
        source = regtta.collect(model, small_models.images(90).double().split(30))
        losses.append(regtta.Adapter(model, "consistency", source).adapt(small_models.images(20).double()).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_only_the_shifted_pass_has_a_gradient():
    source = source_of(np.random.default_rng(0).normal(size=(9, 4)))
    rule = regtta.Consistency().start(context_of(head_of([1.0] * 4), source))
    outputs = torch.randn(3, 1, dtype=torch.float64, requires_grad=True)
    moved = torch.randn(3, 1, dtype=torch.float64, requires_grad=True)
    images = torch.rand(3, 1, 8, 8)
    loss = rule.update(batch_of(torch.zeros(3, 4), outputs=outputs, inputs=images, forward=lambda x: Forward(x, moved)))
    by_moved, by_outputs = torch.autograd.grad(loss, (moved, outputs), allow_unused=True)
    assert by_outputs is None
    variance = source.output_moments(torch.ones(1, 4))[1]
    torch.testing.assert_close(by_moved, 2 * (moved - outputs).detach() / (3 * variance))


def test_a_sum_with_ssa():
    method = regtta.create_method("ssa+7*consistency", k=4)
    assert method.weights == (1.0, 7.0)
    model = small_models.cnn().double()
    source = regtta.collect(model, small_models.images(90).double().split(30))
    x = small_models.images(20, shift=0.5).double()
    whole = regtta.Adapter(model, method, source).adapt(x).loss
    ssa, term = (
        regtta.Adapter(model, method, source).adapt(x).loss for method in (regtta.SSA(k=4), regtta.Consistency())
    )
    assert whole == pytest.approx(ssa + 7 * term)


def test_shifts_of_pixels():
    images = torch.arange(49.0).view(1, 1, 7, 7).repeat(200, 1, 1, 1)
    shifted = shift_pixels(images, 2, torch.Generator().manual_seed(0))
    seen = set()
    for image in shifted[:, 0].numpy():
        row, column = divmod(int(image[3, 3]), 7)
        rows, columns = (np.clip(np.arange(7) + middle - 3, 0, 6) for middle in (row, column))
        np.testing.assert_array_equal(image, images[0, 0].numpy()[np.ix_(rows, columns)])
        seen.add((row - 3, column - 3))
    assert seen == {(i, j) for i in range(-2, 3) for j in range(-2, 3)}


def test_other_inputs_and_constant_outputs_raise():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(60).split(20))
    with pytest.raises(BatchError, match=r"consistency shifts images.*found shape \(20, 5\).*such as ssa"):
        regtta.Adapter(model, "consistency", source).adapt(small_models.table(20))
    tiny = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    source = regtta.collect(tiny, torch.rand(60, 3, 2, 2).split(20))
    with pytest.raises(BatchError, match="more than 2 pixels per side"):
        regtta.Adapter(tiny, "consistency", source).adapt(torch.rand(20, 3, 2, 2))
    with torch.no_grad():
        tiny[3].weight.zero_()
    source = regtta.collect(tiny, torch.rand(60, 3, 2, 2).split(20), head="3")
    with pytest.raises(StatisticsError, match=r"outputs that vary on the source, found variances \[0.0\]"):
        regtta.Adapter(tiny, "consistency", source)
    with pytest.raises(OptionError, match="pixels to be a whole number"):
        regtta.Consistency(pixels=0)
