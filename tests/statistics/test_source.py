import json
import logging

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.decomposition import PCA
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import (
    ExistingFileError,
    ForeignFileError,
    HeadMismatchError,
    MissingFileError,
    ModelMismatchError,
    NewerFormatError,
    OptionError,
    PickleRefusedError,
    StatisticsError,
    TruncatedFileError,
)
from regtta.models.fingerprints import fingerprint
from regtta.statistics.moments import Moments
from regtta.statistics.source import FORMAT_VERSION, SourceStatistics


def features(rows=400, dims=6, rank=4, seed=0):
    rng = np.random.default_rng(seed)
    scales = np.geomspace(5, 0.1, rank)
    return rng.normal(size=(rows, rank)) * scales @ rng.normal(size=(rank, dims)) + rng.normal(size=dims)


def statistics_of(data, head="fc", mark="a" * 64, extras=None):
    values = data.double() if isinstance(data, torch.Tensor) else torch.from_numpy(np.asarray(data, dtype=np.float64))
    moments = Moments.of(values)
    return SourceStatistics.from_moments(moments, head=head, fingerprint=mark, extras=extras)


def test_spectrum_is_that_of_scikit_learns_pca():
    data = features()
    source, pca = statistics_of(data), PCA().fit(data)
    np.testing.assert_allclose(source.mean, pca.mean_, rtol=1e-10)
    np.testing.assert_allclose(source.variances[:4], pca.explained_variance_[:4], rtol=1e-10)
    overlap = np.abs(pca.components_[:4] @ source.basis[:, :4].numpy())
    np.testing.assert_allclose(overlap, np.eye(4), atol=1e-8)
    projected = source.top(4).project(torch.from_numpy(data))
    np.testing.assert_allclose(np.abs(projected.numpy()), np.abs(pca.transform(data)[:, :4]), rtol=1e-6, atol=1e-9)


def test_variances_fall_and_the_basis_is_orthonormal_with_settled_signs():
    source = statistics_of(features())
    assert (source.variances.diff() <= 0).all()
    assert (source.variances >= 0).all()
    torch.testing.assert_close(source.basis.T @ source.basis, torch.eye(6, dtype=torch.float64))
    largest = source.basis.gather(0, source.basis.abs().argmax(0, keepdim=True))
    assert (largest > 0).all()
    torch.testing.assert_close(source.covariance(), torch.from_numpy(np.cov(features().T)))


def test_rank_counts_what_float32_can_see():
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
    data[:, 2] = np.where(np.arange(len(data)) == 7, 1e-9, 0)  # fires once, and faintly
    source = statistics_of(data)
    assert source.valid_mask.tolist() == [False, False, True, True, True, True]
    assert source.valid_dimensions == 4
    np.testing.assert_allclose(source.feature_variances, data.var(0, ddof=1), rtol=1e-9, atol=1e-9)


def test_dimensions_for_a_share_of_the_variance():
    data = np.diag([3.0, 2.0, 1.0, 0.0])
    data = np.concatenate([data, -data])
    source = statistics_of(data)
    shares = np.cumsum([9, 4, 1, 0]) / 14
    assert source.dimensions == 4
    assert source.dimensions_for(0.5) == 1
    assert source.dimensions_for(shares[1] - 1e-6) == 2
    assert source.dimensions_for(shares[1] + 1e-6) == 3
    assert source.dimensions_for(1.0) <= 4


def test_top_clips_to_the_rank_and_says_so(caplog):
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
def test_top_of_a_k_there_cannot_be(k, clip):
    with pytest.raises(OptionError, match=f"between 1 and 6.*found {k}"):
        statistics_of(features()).top(k, clip=clip)


def test_a_default_k_wider_than_the_features_is_cut_like_any_other():
    assert statistics_of(features(rank=4)).top(100).basis.shape == (6, 4)


def test_merge_of_halves_is_one_pass_over_the_whole():
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


def test_merge_of_statistics_that_do_not_belong_together(caplog):
    source = statistics_of(features())
    with pytest.raises(ModelMismatchError):
        source.merge(statistics_of(features(), mark="b" * 64))
    with pytest.raises(HeadMismatchError, match="'fc', not at 'head'"):
        source.merge(statistics_of(features(), head="head"))
    with caplog.at_level(logging.WARNING, "regtta"):
        source.merge(statistics_of(features(), extras={"m/x": torch.zeros(1)}))
    assert "m/x" in caplog.text


def test_a_file_gives_back_every_value(tmp_path):
    source = statistics_of(features(), extras={"method/histogram": torch.rand(3, 4)})
    source.save(tmp_path / "s.safetensors")
    again = SourceStatistics.load(tmp_path / "s.safetensors")
    for name in ("mean", "variances", "basis", "feature_variances"):
        assert torch.equal(getattr(source, name), getattr(again, name))
    assert (again.count, again.head, again.fingerprint) == (400, "fc", "a" * 64)
    assert again.extras.keys() == {"method/histogram"}
    assert torch.equal(again.extras["method/histogram"], source.extras["method/histogram"])


def test_nothing_is_overwritten_without_asking(tmp_path):
    path = tmp_path / "s.safetensors"
    statistics_of(features()).save(path)
    kept = path.read_bytes()
    with pytest.raises(ExistingFileError, match="overwrite=True"):
        statistics_of(features(seed=1)).save(path)
    assert path.read_bytes() == kept
    statistics_of(features(seed=1)).save(path, overwrite=True)
    assert path.read_bytes() != kept
    assert list(tmp_path.iterdir()) == [path]


def test_each_broken_file_has_its_own_error(tmp_path):
    path = tmp_path / "s.safetensors"
    with pytest.raises(MissingFileError, match="There is no file"):
        SourceStatistics.load(path)
    statistics_of(features()).save(path)
    whole = path.read_bytes()
    for length in (0, 3, 8, 20, 300, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(TruncatedFileError, match=f"cut off after {length} bytes"):
            SourceStatistics.load(path)
    path.write_bytes(b"a,b\n1,2\n3,4\n5,6\n")
    with pytest.raises(ForeignFileError, match="not a safetensors file"):
        SourceStatistics.load(path)
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(ForeignFileError, match=r"not one of source statistics.*regtta.collect"):
        SourceStatistics.load(path)
    torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(PickleRefusedError, match="never loads one"):
        SourceStatistics.load(path)


def rewritten(path, change, about=None):
    source = statistics_of(features())
    tensors = {name: getattr(source, name) for name in ("mean", "variances", "basis", "feature_variances")}
    facts = {"format": FORMAT_VERSION, "count": 400, "head": "fc", "fingerprint": "a"} | (about or {})
    facts = {key: value for key, value in facts.items() if value is not None}
    tensors = {name: value.contiguous() for name, value in change(tensors).items()}
    save_file(tensors, path, metadata={"regtta.statistics": json.dumps(facts)})


def test_a_newer_format_and_damaged_contents(tmp_path):
    path = tmp_path / "s.safetensors"
    rewritten(path, lambda t: t, {"format": FORMAT_VERSION + 1, "regtta": "99.0"})
    with pytest.raises(NewerFormatError, match=r"Upgrade regtta.*99\.0"):
        SourceStatistics.load(path)
    rewritten(path, lambda t: t, {"head": None})
    with pytest.raises(ForeignFileError, match=r"lacks \['head'\]"):
        SourceStatistics.load(path)
    rewritten(path, lambda t: {k: v for k, v in t.items() if k != "basis"})
    with pytest.raises(ForeignFileError, match="expected 'basis' of shape \\(6, 6\\), found nothing"):
        SourceStatistics.load(path)
    rewritten(path, lambda t: {k: v for k, v in t.items() if k != "mean"})
    with pytest.raises(ForeignFileError, match="expected 'mean'"):
        SourceStatistics.load(path)
    rewritten(path, lambda t: t | {"variances": torch.zeros(3, dtype=torch.float64)})
    with pytest.raises(ForeignFileError, match="'variances' of shape \\(6,\\), found shape \\(3,\\)"):
        SourceStatistics.load(path)
    for wrong in (t_nan, t_float32):
        rewritten(path, wrong)
        with pytest.raises(ForeignFileError, match="'mean' is not finite float64"):
            SourceStatistics.load(path)
    rewritten(path, lambda t: t)
    assert SourceStatistics.load(path).count == 400


def t_nan(tensors):
    return tensors | {"mean": torch.full((6,), torch.nan, dtype=torch.float64)}


def t_float32(tensors):
    return tensors | {"mean": tensors["mean"].float()}


def test_fingerprint_sees_names_shapes_and_values_but_not_the_batch_counter():
    net = small_models.mlp()
    mark = fingerprint(net)
    assert len(mark) == 64
    net[1].num_batches_tracked += 5
    net.train()
    assert fingerprint(net) == mark
    with torch.no_grad():
        net[1].running_mean[0] += 1e-6
    assert fingerprint(net) != mark
    flat, column = nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        column.weight.copy_(flat.weight.T)
    assert fingerprint(flat) != fingerprint(column)
    assert fingerprint(nn.Sequential(flat)) != fingerprint(nn.ModuleDict({"a": flat}))
    assert fingerprint(nn.Linear(2, 1).bfloat16()) != fingerprint(nn.Linear(2, 1))


def test_moving_a_subspace_keeps_it():
    subspace = statistics_of(features()).top(3)
    moved = subspace.to(torch.device("cpu"), torch.float32)
    assert moved.basis.dtype == moved.mean.dtype == moved.variances.dtype == torch.float32
    torch.testing.assert_close(moved.basis.double(), subspace.basis, rtol=1e-6, atol=1e-6)


# --- files that are no spectrum ---------------------------------------------------------------------


def with_row(values, row, value):
    changed = values.clone()
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: {"variances": with_row(t["variances"], 5, -1e-3)}, "'variances' has negative values"),
        (
            lambda t: {"feature_variances": with_row(t["feature_variances"], 0, -1.0)},
            "'feature_variances' has negative",
        ),
        (lambda t: {"variances": t["variances"].flip(0)}, "'variances' are not in descending order"),
        (lambda t: {"basis": t["basis"] * 2}, "not orthonormal"),
        (lambda t: {"basis": torch.zeros_like(t["basis"])}, "not orthonormal"),
        (lambda t: {"basis": with_row(t["basis"], (slice(None), 3), t["basis"][:, 2])}, "not orthonormal"),
        (lambda t: {"basis": t["basis"] * 1e200}, "not orthonormal"),
        (lambda t: {"basis": t["basis"] + 1e-6}, "not orthonormal"),
        (lambda t: {"feature_variances": t["feature_variances"] * 1.001}, "do not match the spectrum"),
        (lambda t: {"variances": t["variances"] * 1.001}, "do not match the spectrum"),
        (
            lambda t: {name: torch.zeros_like(t[name]) for name in ("variances", "feature_variances")},
            "rank from 1 to 399, found 0",
        ),
    ],
)
def test_a_file_that_is_no_spectrum_of_a_covariance_is_refused(tmp_path, change, words):
    path = tmp_path / "s.safetensors"
    rewritten(path, lambda tensors: tensors | change(tensors))
    with pytest.raises(ForeignFileError, match=words) as caught:
        SourceStatistics.load(path)
    assert str(path) in str(caught.value)
    assert "ollect" in str(caught.value)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"count": 1}, "count of 2 samples or more"),
        ({"count": True}, "count of 2 samples or more"),
        ({"count": 4}, "rank from 1 to 3, found 4"),
        ({"head": 3}, "'head' to be a string"),
        ({"fingerprint": ["a"]}, "'fingerprint' to be a string"),
    ],
)
def test_a_file_whose_count_or_names_cannot_be_is_refused(tmp_path, about, words):
    path = tmp_path / "s.safetensors"
    rewritten(path, lambda tensors: tensors, about)
    with pytest.raises(ForeignFileError, match=words):
        SourceStatistics.load(path)


def deep_features(dtype):
    """Features as networks give them: rectified, some dead, one far off, on wildly different scales, fewer than D."""
    values = torch.randn(200, 300, generator=torch.Generator().manual_seed(0)).relu()
    values *= torch.logspace(-6, 3, 300)
    values[:, ::7] = 0
    values[:, 11] = 4096.0
    return (values + torch.linspace(0, 100, 300)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [2, 3, 200])
def test_whatever_collecting_gives_can_be_loaded_again(tmp_path, dtype, rows):
    data = deep_features(dtype)[:rows]
    whole = statistics_of(data)
    merged = statistics_of(data[: rows // 2 + 1]).merge(statistics_of(data[-2:])) if rows > 2 else whole
    for number, source in enumerate((whole, merged)):
        source.save(tmp_path / f"{number}.safetensors")
        assert SourceStatistics.load(tmp_path / f"{number}.safetensors").rank == source.rank > 0


def test_features_that_do_not_vary_are_refused_wherever_they_come_from(tmp_path):
    still = statistics_of(torch.ones(10, 6, dtype=torch.float64))
    assert still.rank == 0
    for k in ("auto", 3):
        with pytest.raises(StatisticsError, match="source features do not vary"):
            still.top(k)
    still.save(tmp_path / "s.safetensors")
    with pytest.raises(ForeignFileError, match="found 0"):
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
def test_an_adapter_refuses_statistics_that_do_not_vary_when_it_is_made(method, guards):
    model = small_models.mlp()
    moments = Moments.of(torch.ones(10, 12))
    still = SourceStatistics.from_moments(moments, head="6", fingerprint=fingerprint(model))
    with pytest.raises(StatisticsError, match="source features do not vary"):
        regtta.Adapter(model, method, still, guards=guards)
    regtta.Adapter(model, regtta.BNAdapt(), still)  # which needs none
