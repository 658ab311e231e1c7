import logging

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import regtta
from helpers import small_models
from helpers.source_statistics import features, statistics_of
from regtta.errors import (
    HeadMismatchError,
    InvalidFileError,
    ModelMismatchError,
    OptionError,
    StatisticsError,
)
from regtta.models.fingerprints import fingerprint
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics


def test_spectrum_equals_that_of_pca():
    data = features()
    source, pca = statistics_of(data), PCA().fit(data)
    np.testing.assert_allclose(source.mean, pca.mean_, rtol=1e-10)
    np.testing.assert_allclose(source.variances[:4], pca.explained_variance_[:4], rtol=1e-10)
    overlap = np.abs(pca.components_[:4] @ source.basis[:, :4].numpy())
    np.testing.assert_allclose(overlap, np.eye(4), atol=1e-8)
    projected = source.top(4).project(torch.from_numpy(data))
    np.testing.assert_allclose(np.abs(projected.numpy()), np.abs(pca.transform(data)[:, :4]), rtol=1e-6, atol=1e-9)


def test_variances_descend_and_the_basis_is_orthonormal_with_fixed_signs():
    source = statistics_of(features())
    assert (source.variances.diff() <= 0).all()
    assert (source.variances >= 0).all()
    torch.testing.assert_close(source.basis.T @ source.basis, torch.eye(6, dtype=torch.float64))
    largest = source.basis.gather(0, source.basis.abs().argmax(0, keepdim=True))
    assert (largest > 0).all()
    torch.testing.assert_close(source.covariance(), torch.from_numpy(np.cov(features().T)))


def test_rank_excludes_variance_below_float32_precision():
    assert statistics_of(features(rank=4)).rank == 4
    data = np.random.default_rng(0).normal(size=(5000, 3))
    data -= data.mean(0)
    data = np.linalg.qr(data)[0] * np.sqrt(4999)  # covariance exactly the identity
    limit = 3 * np.finfo(np.float32).eps
    assert statistics_of(data * np.sqrt([1, 1, limit * 1.05])).rank == 3
    assert statistics_of(data * np.sqrt([1, 1, limit * 0.95])).rank == 2


def test_valid_dimensions_have_variance_beyond_rounding():
    data = features(rank=6)
    data[:, 0] = 0
    data[:, 1] = 1e9 + 0.3
    data[:, 2] = np.where(np.arange(len(data)) == 7, 1e-9, 0)  # a single small value
    source = statistics_of(data)
    assert source.valid_mask.tolist() == [False, False, True, True, True, True]
    assert source.valid_dimensions == 4
    np.testing.assert_allclose(source.feature_variances, data.var(0, ddof=1), rtol=1e-9, atol=1e-9)


def test_dimensions_for_a_fraction_of_the_variance():
    data = np.diag([3.0, 2.0, 1.0, 0.0])
    data = np.concatenate([data, -data])
    source = statistics_of(data)
    shares = np.cumsum([9, 4, 1, 0]) / 14
    assert source.dimensions == 4
    assert source.dimensions_for(0.5) == 1
    assert source.dimensions_for(shares[1] - 1e-6) == 2
    assert source.dimensions_for(shares[1] + 1e-6) == 3
    assert source.dimensions_for(1.0) <= 4


def test_top_clips_to_the_rank_with_a_warning(caplog):
    source = statistics_of(features(rank=4))
    with caplog.at_level(logging.WARNING, "regtta"):
        assert source.top(4).basis.shape == (6, 4)
        assert not caplog.records
        assert source.top(5).basis.shape == (6, 4)
    assert "k=5 is beyond the rank 4" in caplog.text
    caplog.clear()
    assert source.top(5, clip=False).basis.shape == (6, 5)
    assert source.top("auto").variances.shape == (4,)
    assert not caplog.records
    torch.testing.assert_close(source.top(2).variances, source.variances[:2])


@pytest.mark.parametrize(("k", "clip"), [(0, True), (-1, False), (7, False)])
def test_top_rejects_an_invalid_k(k, clip):
    with pytest.raises(OptionError, match=f"between 1 and 6.*found {k}"):
        statistics_of(features()).top(k, clip=clip)


def test_a_default_k_above_the_number_of_features_is_clipped():
    assert statistics_of(features(rank=4)).top(100).basis.shape == (6, 4)


def test_merging_halves_equals_one_pass_over_the_whole():
    data = features(rows=501)
    whole = statistics_of(data)
    merged = statistics_of(data[:200]).merge(statistics_of(data[200:]))
    assert merged.count == 501
    assert merged.rank == whole.rank
    torch.testing.assert_close(merged.mean, whole.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(merged.variances, whole.variances, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(merged.basis[:, :4], whole.basis[:, :4], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(merged.covariance(), whole.covariance(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(merged.feature_variances, whole.feature_variances, rtol=1e-10, atol=0)


def test_merging_keeps_a_dead_dimension_dead():
    data = features(rank=6)
    data[:, 3] = 0
    merged = statistics_of(data[:100]).merge(statistics_of(data[100:]))
    assert merged.valid_dimensions == 5


def test_merging_mismatched_statistics_raises(caplog):
    source = statistics_of(features())
    with pytest.raises(ModelMismatchError):
        source.merge(statistics_of(features(), mark="b" * 64))
    with pytest.raises(HeadMismatchError, match="'fc', not at 'head'"):
        source.merge(statistics_of(features(), head="head"))
    with caplog.at_level(logging.WARNING, "regtta"):
        source.merge(statistics_of(features(), extras={"m/x": torch.zeros(1)}))
    assert "m/x" in caplog.text


def test_repr_is_short():
    assert repr(statistics_of(features(rank=4))) == "SourceStatistics(count=400, dimensions=6, rank=4, head='fc')"


def test_subspace_to_device_and_dtype():
    subspace = statistics_of(features()).top(3)
    moved = subspace.to(torch.device("cpu"), torch.float32)
    assert moved.basis.dtype == moved.mean.dtype == moved.variances.dtype == torch.float32
    torch.testing.assert_close(moved.basis.double(), subspace.basis, rtol=1e-6, atol=1e-6)


def test_constant_features_are_rejected_by_collect_and_load(tmp_path):
    constant = statistics_of(torch.ones(10, 6, dtype=torch.float64))
    assert constant.rank == 0
    for k in ("auto", 3):
        with pytest.raises(StatisticsError, match="source features do not vary"):
            constant.top(k)
    constant.save(tmp_path / "s.safetensors")
    with pytest.raises(InvalidFileError, match="found 0"):
        SourceStatistics.load(tmp_path / "s.safetensors")
    with pytest.raises(StatisticsError, match="source features do not vary: all 20 samples.*Collect over data"):
        regtta.collect(small_models.mlp(), [torch.ones(20, 5)])


@pytest.mark.parametrize(
    ("method", "guards"),
    [
        (regtta.SSA(), ()),
        (regtta.FeatureAlignment(), ()),
        (regtta.FeatureRestoration(), ()),
        (regtta.BNAdapt(), regtta.SAFE),
        (regtta.BNAdapt(), [regtta.guards.OutputRange()]),
    ],
)
def test_an_adapter_rejects_statistics_of_constant_features(method, guards):
    model = small_models.mlp()
    moments = Moments.from_features(torch.ones(10, 12))
    constant = SourceStatistics.from_moments(moments, head="6", fingerprint=fingerprint(model))
    with pytest.raises(StatisticsError, match="source features do not vary"):
        regtta.Adapter(model, method, constant, guards=guards)
    regtta.Adapter(model, regtta.BNAdapt(), constant)  # which needs no variance
