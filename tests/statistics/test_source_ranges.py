import numpy as np
import torch

import regtta
from helpers import small_models
from regtta.execution.distributed import SINGLE_PROCESS
from regtta.models.features import Forward
from regtta.statistics.source_ranges import FurthestFeatures, InputRanges


def test_ranges_are_the_largest_magnitudes_of_all_batches():
    batches = small_models.table(400, inputs=4).split(50)
    batches[3][7, 2] = -900.0
    ranges = InputRanges()
    for batch in batches:
        ranges.update(batch)
    expected = torch.cat(batches).abs().amax(dim=0).double()
    assert torch.equal(ranges.all_reduce(SINGLE_PROCESS), expected)
    images = InputRanges()
    pictures = torch.randn(20, 3, 4, 4)
    images.update(pictures)
    assert torch.equal(images.all_reduce(SINGLE_PROCESS), pictures.abs().amax(dim=(0, 2, 3)).double())


def test_integers_have_no_ranges_and_non_finite_inputs_are_unbounded():
    ranges = InputRanges()
    ranges.update(torch.randint(9, (32, 4)))
    assert ranges.all_reduce(SINGLE_PROCESS).shape == (0,)
    infinite = torch.randn(32, 2)
    infinite[3, 1] = torch.inf
    infinite[4, 0] = torch.nan
    ranges.update(infinite)
    assert (ranges.all_reduce(SINGLE_PROCESS) == torch.finfo(torch.float64).max).all()


def test_only_the_furthest_features_are_kept():
    features = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0))
    collector = FurthestFeatures(torch.device("cpu"))
    for batch in features.split(100):
        collector.update(Forward(batch, batch), 0)
    collector.merge(SINGLE_PROCESS, 0)
    distance = (features - features[:100].mean(dim=0)).square().sum(dim=1)
    expected = features[distance.topk(64).indices]
    assert torch.equal(collector.rows.sort(dim=0).values, expected.sort(dim=0).values)


def test_statistics_contain_the_ranges_of_the_source(tmp_path):
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
    # The largest norm is that of the 64 samples furthest from the mean before whitening.
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
