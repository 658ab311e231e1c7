import numpy as np
import torch

import regtta
from helpers import small_models
from regtta.execution.distributed import SINGLE_PROCESS
from regtta.models.features import Forward
from regtta.statistics.outliers import FurthestFeatures, InputRanges


def test_ranges_are_the_largest_magnitudes_of_all_batches():
    batches = small_models.table(400, inputs=4).split(50)
    batches[3][7, 2] = -900.0
    ranges = InputRanges()
    for batch in batches:
        ranges.see(batch)
    expected = torch.cat(batches).abs().amax(dim=0).double()
    assert torch.equal(ranges.merged(SINGLE_PROCESS), expected)
    images = InputRanges()
    pictures = torch.randn(20, 3, 4, 4)
    images.see(pictures)
    assert torch.equal(images.merged(SINGLE_PROCESS), pictures.abs().amax(dim=(0, 2, 3)).double())


def test_whole_numbers_have_no_ranges_and_what_is_not_finite_has_no_bound():
    ranges = InputRanges()
    ranges.see(torch.randint(9, (32, 4)))
    assert ranges.merged(SINGLE_PROCESS).shape == (0,)
    infinite = torch.randn(32, 2)
    infinite[3, 1] = torch.inf
    infinite[4, 0] = torch.nan
    ranges.see(infinite)
    assert (ranges.merged(SINGLE_PROCESS) == torch.finfo(torch.float64).max).all()


def test_the_furthest_features_are_kept_and_no_more():
    features = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0))
    gatherer = FurthestFeatures(torch.device("cpu"))
    for batch in features.split(100):
        gatherer.see(Forward(batch, batch), 0)
    gatherer.merge(SINGLE_PROCESS, 0)
    distance = (features - features[:100].mean(dim=0)).square().sum(dim=1)
    expected = features[distance.topk(64).indices]
    assert torch.equal(gatherer.rows.sort(dim=0).values, expected.sort(dim=0).values)


def test_statistics_know_how_far_the_source_reaches(tmp_path):
    model = small_models.mlp()
    data = small_models.table(600)
    source = regtta.collect(model, data.split(60))
    z = small_models.numpy64(model[:6](data))
    centred = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(centred.T))
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    kept = int((np.cumsum(values) / values.sum() < 0.99).sum()) + 1
    norms = ((centred @ vectors[:, :kept]) ** 2 / values[:kept]).sum(axis=1)
    # The largest norm is looked for among the 64 samples furthest from the mean, not whitened.
    assert 0.5 * norms.max() < source.largest_feature_norm <= norms.max() * 1.001
    path = tmp_path / "source.safetensors"
    source.save(path)
    loaded = regtta.SourceStatistics.load(path)
    assert loaded.largest_feature_norm == source.largest_feature_norm > 0
    assert torch.equal(loaded.input_ranges, data.abs().amax(dim=0).double())
    halves = [regtta.collect(model, part.split(60)) for part in data.split(300)]
    merged = halves[0].merge(halves[1])
    assert torch.equal(merged.input_ranges, loaded.input_ranges)
    assert merged.largest_feature_norm == max(half.largest_feature_norm for half in halves)
