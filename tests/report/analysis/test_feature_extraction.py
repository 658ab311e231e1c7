import pytest
import torch

from helpers import small_models
from regtta.errors import BatchError, HeadError, OptionError
from regtta.report.analysis import compute_features
from regtta.report.analysis.feature_extraction import subsample, validate_features, varying_columns


def test_features_are_the_inputs_of_the_head_in_eval_mode():
    model = small_models.mlp()
    model.train()
    x = small_models.table(70)
    expected = model.eval()[:-1](x)
    model.train()
    before = small_models.model_snapshot(model)
    found = compute_features(model, [(part, torch.zeros(len(part))) for part in x.split(32)], "6")
    assert torch.allclose(found, expected)
    assert not found.requires_grad
    small_models.assert_unchanged(before, model)


def test_max_rows_stops_reading():
    read = []

    def loader():
        for part in small_models.table(100).split(10):
            read.append(len(part))
            yield part

    found = compute_features(small_models.mlp(), loader(), "6", max_rows=25)
    assert torch.allclose(found, compute_features(small_models.mlp(), [small_models.table(100)], "6")[:25])
    assert len(read) == 3


def test_dict_batches_need_the_key_of_their_input():
    batches = [{"image": small_models.table(4), "age": torch.zeros(4)}]
    assert compute_features(small_models.mlp(), batches, "6", inputs="image").shape == (4, 12)


def test_invalid_arguments_are_rejected():
    with pytest.raises(BatchError, match="no samples"):
        compute_features(small_models.mlp(), [], "6")
    with pytest.raises(OptionError, match="max_rows"):
        compute_features(small_models.mlp(), [small_models.table(4)], "6", max_rows=0)
    with pytest.raises(HeadError, match="linear layers here"):
        compute_features(small_models.mlp(), [small_models.table(4)], "7")


@pytest.mark.parametrize("shape", [(3,), (3, 5), (0, 12)])
def test_features_of_another_shape_are_rejected(case, shape):
    with pytest.raises(BatchError, match=r"\(N, 12\)"):
        validate_features(case.source, torch.zeros(shape))


def test_subsamples_are_without_repetition_and_depend_on_the_seed():
    rows = torch.arange(50)
    first = subsample(rows, 20, seed=1)
    assert len(set(first.tolist())) == 20
    assert torch.equal(first, subsample(rows, 20, seed=1))
    assert not torch.equal(first, subsample(rows, 20, seed=2))
    assert torch.equal(subsample(rows, 50, seed=1), rows)
    # Tables of the same length give the same rows.
    assert torch.equal(subsample(rows * 3, 20, seed=1), first * 3)


def test_rounding_does_not_count_as_variation():
    rows = torch.full((1000, 2), 0.1, dtype=torch.float64)
    rows[:, 1] = torch.linspace(0, 1, 1000)
    assert varying_columns(rows).tolist() == [False, True]
    assert varying_columns(rows[:1]).tolist() == [False, False]
