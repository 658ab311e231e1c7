"""Moments of the inputs by column, and the names of the columns, from collection to the merged file."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed as dist
from torch import nn

import regtta
from helpers import small_models
from helpers.process_groups import run_in_processes
from regtta.errors import MismatchError, OptionError, RegttaError
from regtta.execution.distributed import make_communicator
from regtta.statistics import input_moments
from regtta.statistics.input_moments import ColumnMoments, InputMoments

NAMES = ["age", "height", "weight", "income", "rooms"]


def moments_of(batches) -> ColumnMoments:
    moments = InputMoments()
    for batch in batches:
        moments.update(batch)
    return moments.result()


def assert_moments(found: ColumnMoments, values: np.ndarray, **tolerance: float) -> None:
    """Compare with NumPy's moments of values (n, C)."""
    assert found.count == len(values)
    assert found.mean.dtype == found.variance.dtype == torch.float64
    tolerance = tolerance or {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(found.mean.numpy(), values.mean(axis=0), **tolerance)
    np.testing.assert_allclose(found.variance.numpy(), values.var(axis=0, ddof=1), **tolerance)


def test_columns_of_a_table():
    data = small_models.table(400, inputs=4) * torch.tensor([1.0, 1e-3, 50.0, 0.0]) + torch.tensor(
        [0.0, 5.0, -9.0, 2.0]
    )
    assert_moments(moments_of(data.split([3, 97, 300])), data.double().numpy())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_channels_of_images_are_moments_of_all_values_and_not_of_magnitudes(layout, monkeypatch):
    monkeypatch.setattr(input_moments, "_BLOCK_VALUES", 200)  # several blocks per batch
    images = (torch.randn(50, 3, 6, 7) - 1).to(memory_format=layout)
    found = moments_of(images.split(20))
    assert_moments(found, images.double().permute(0, 2, 3, 1).reshape(-1, 3).numpy())
    assert bool((found.mean < -0.5).all())


def test_sequences_whose_length_changes_and_inputs_of_one_column():
    sequences = [torch.randn(5, 2, length) for length in (3, 9, 4)]
    values = torch.cat([each.transpose(1, 2).reshape(-1, 2) for each in sequences])
    assert_moments(moments_of(sequences), values.double().numpy())
    wide, flat = torch.randn(20, 300), torch.randn(30)
    assert_moments(moments_of([wide]), wide.double().reshape(-1, 1).numpy())
    assert_moments(moments_of([flat]), flat.double()[:, None].numpy())


def test_values_far_from_zero_lose_no_precision():
    data = torch.randn(1000, 2, dtype=torch.float64) + 1e6
    assert_moments(moments_of(data.split(7)), data.numpy(), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    "batches",
    [
        [torch.randint(9, (8, 3))],
        [torch.randn(8, 3), torch.randint(9, (8, 3))],
        [torch.randn(8, 3, 4), torch.randn(8, 2, 4)],
        [torch.randn(8, 3, 0)],
        [torch.randn(1, 3)],
        [torch.tensor([[1.0], [torch.nan], [2.0]])],
        [torch.tensor([[1.0], [torch.inf], [2.0]])],
        [],
    ],
)
def test_moments_that_are_not_known_are_empty(batches):
    found = moments_of(batches)
    assert (found.count, found.mean.shape, found.variance.shape) == (0, (0,), (0,))
    known = moments_of([torch.randn(8, 3)])
    assert known.merge(found).count == found.merge(known).count == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.floats(-1e4, 1e4), st.data())
def test_merging_parts_gives_the_moments_of_the_whole(sizes, offset, data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    parts = [torch.randn(2 * size, 3, generator=generator, dtype=torch.float64) + offset for size in sizes]
    merged = moments_of(parts[:1])
    for part in parts[1:]:
        merged = merged.merge(moments_of([part]))
    assert_moments(merged, torch.cat(parts).numpy(), rtol=1e-9, atol=1e-9)


def _reduce(group: dist.ProcessGroup, shards: list[torch.Tensor | None]) -> ColumnMoments:
    moments = InputMoments()
    own = shards[group.rank()]
    if own is not None:
        moments.update(own)
    return moments.all_reduce(make_communicator(group))


def test_processes_return_the_moments_of_all_their_values(tmp_path):
    data = torch.randn(40, 2, 3, dtype=torch.float64) + 1e3
    values = data.transpose(1, 2).reshape(-1, 2).numpy()
    for found in run_in_processes(3, _reduce, tmp_path, [data[:7], None, data[7:]]):
        assert_moments(found, values, rtol=1e-10, atol=0)


def test_processes_with_different_columns_do_not_know_them(tmp_path):
    for other in (torch.randn(8, 4), torch.randint(9, (8, 3))):
        for found in run_in_processes(2, _reduce, tmp_path, [torch.randn(8, 3), other]):
            assert (found.count, found.mean.shape) == (0, (0,))


def test_collect_stores_names_and_moments(tmp_path):
    model, data = small_models.mlp(), small_models.table(300)
    source = regtta.collect(model, data.split(60), columns=NAMES)
    assert source.columns == tuple(NAMES)
    source.save(tmp_path / "s.safetensors")
    for found in (source, regtta.SourceStatistics.load(tmp_path / "s.safetensors")):
        assert found.columns == tuple(NAMES)
        assert_moments(ColumnMoments(found.input_count, found.input_mean, found.input_variance), data.double().numpy())
    plain = regtta.collect(model, data.split(60))
    assert plain.columns == ()
    assert torch.equal(plain.input_mean, source.input_mean)


def test_a_second_pass_is_not_counted_again():
    model, data = small_models.mlp(), small_models.table(300)
    source = regtta.collect(model, data.split(60), methods=[regtta.FeatureRestoration(bins=4)])
    assert source.input_count == 300


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("age", "list of names such as"),
        (3, "list of names such as"),
        (["age", 3], "found 3"),
        (["age", "age"], "found 'age' twice"),
        (NAMES[:4], r"found 4 \(age, height, weight, income\) and inputs of shape \(60, 5\)"),
    ],
)
def test_wrong_names_are_rejected(columns, words):
    with pytest.raises(OptionError, match=words):
        regtta.collect(small_models.mlp(), small_models.table(120).split(60), columns=columns)


def test_names_are_for_tables_only():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 1))
    with pytest.raises(OptionError, match="a table of inputs"):
        regtta.collect(model, [torch.randn(8, 3, 2, 2)], columns=["r", "g", "b"])


def test_merged_statistics_have_the_moments_of_the_whole():
    model, data = small_models.mlp(), small_models.table(300)
    first, second = data.split(100)[0], data[100:]
    merged = regtta.collect(model, [first], columns=NAMES).merge(regtta.collect(model, [second], columns=NAMES))
    assert merged.columns == tuple(NAMES)
    assert_moments(ColumnMoments(merged.input_count, merged.input_mean, merged.input_variance), data.double().numpy())


def test_only_statistics_of_the_same_columns_are_merged():
    model, data = small_models.mlp(), small_models.table(100)
    named, plain = regtta.collect(model, [data], columns=NAMES), regtta.collect(model, [data])
    assert named.merge(plain).columns == plain.merge(named).columns == tuple(NAMES)
    other = regtta.collect(model, [data], columns=NAMES[::-1])
    with pytest.raises(MismatchError, match="same columns in the same order") as caught:
        named.merge(other)
    assert isinstance(caught.value, RegttaError)


def test_the_covariance_of_a_table_is_numpys_also_when_merged(tmp_path):
    model, data = small_models.mlp(inputs=5), small_models.table(600, inputs=5) @ torch.randn(5, 5) + 3
    source = regtta.collect(model, data.split(70))
    expected = np.cov(data.double().numpy().T)
    np.testing.assert_allclose(source.input_covariance, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(source.input_covariance, source.input_covariance.T)
    assert torch.equal(source.input_covariance.diagonal(), source.input_variance)
    source.save(tmp_path / "s.safetensors")
    assert torch.equal(
        regtta.SourceStatistics.load(tmp_path / "s.safetensors").input_covariance, source.input_covariance
    )
    merged = regtta.collect(model, data[:200].split(70)).merge(regtta.collect(model, data[200:].split(70)))
    np.testing.assert_allclose(merged.input_covariance, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(8, 3, 4), (8, 300), (8, 1), (8,)])
def test_the_covariance_is_unknown_for_other_inputs(shape):
    covariance = input_moments.InputCovariance()
    covariance.update(torch.randn(shape))
    assert covariance.all_reduce(make_communicator(None), torch.device("cpu"), torch.ones(0)).shape == (0, 0)


def test_a_covariance_that_contradicts_the_variances_is_damage(tmp_path):
    source = regtta.collect(small_models.mlp(inputs=5), small_models.table(200, inputs=5).split(70))
    wrong = source.input_covariance.clone()
    wrong[0, 1] = wrong[1, 0] = 10 * wrong.diagonal().max()
    dataclasses.replace(source, input_covariance=wrong).save(tmp_path / "s.safetensors")
    with pytest.raises(RegttaError, match="input_covariance"):
        regtta.SourceStatistics.load(tmp_path / "s.safetensors")


def _reduce_covariance(group: dist.ProcessGroup, shards: list[torch.Tensor | None]) -> torch.Tensor:
    covariance, own = input_moments.InputCovariance(), shards[group.rank()]
    for batch in () if own is None else own.split(3):
        covariance.update(batch)
    variance = torch.cat([shard for shard in shards if shard is not None]).var(dim=0)
    return covariance.all_reduce(make_communicator(group), torch.device("cpu"), variance)


def test_the_covariance_over_processes_is_that_of_all_samples(tmp_path):
    data = torch.arange(60.0, dtype=torch.float64).reshape(20, 3).sin()
    for found in run_in_processes(3, _reduce_covariance, tmp_path, [data[:7], None, data[7:]]):
        np.testing.assert_allclose(found, np.cov(data.numpy().T), rtol=1e-12)
