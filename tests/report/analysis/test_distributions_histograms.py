import json

import numpy as np
import pytest
import torch
from scipy import stats

from helpers import small_models
from regtta.errors import BatchError, OptionError
from regtta.report.analysis import feature_histograms


def test_histograms_are_of_the_dimensions_they_name(case):
    report = feature_histograms(case.source, case.before, shown=4, bins=20, seed=5)
    raw = small_models.numpy64(case.before)
    projected = (raw - small_models.numpy64(case.source.mean)) @ small_models.numpy64(case.source.basis)
    for histograms, kind, table in ((report.raw, "raw dimension", raw), (report.projected, "direction", projected)):
        assert len({histogram.name for histogram in histograms}) == 4
        for histogram in histograms:
            name, column = histogram.name.rsplit(" ", 1)
            x = table[:, int(column)]
            assert name == kind
            counts = [
                ((x >= low) & (x < high)).sum() for low, high in zip(histogram.edges, histogram.edges[1:], strict=False)
            ]
            counts[-1] += (x == histogram.edges[-1]).sum()
            assert histogram.density == pytest.approx(np.array(counts) / 200 / np.diff(histogram.edges), abs=1e-6)
            assert (histogram.density * np.diff(histogram.edges)).sum() == pytest.approx(1)
            assert histogram.mean == pytest.approx(x.mean())
            assert histogram.sd == pytest.approx(x.std(ddof=1))
            assert histogram.skewness == pytest.approx(stats.skew(x))
            assert histogram.kurtosis == pytest.approx(stats.kurtosis(x))
            expected = stats.kstest(x, "norm", args=(x.mean(), x.std(ddof=1))).statistic
            assert histogram.distance == pytest.approx(expected)
    assert (report.count, report.seed) == (200, 5)
    json.dumps(report.to_dict(), allow_nan=False)


def test_the_choice_depends_on_the_seed_and_stays_within_k(case):
    names = {
        seed: [h.name for h in feature_histograms(case.source, case.before, shown=2, k=3, seed=seed).projected]
        for seed in range(8)
    }
    assert names[0] == [h.name for h in feature_histograms(case.source, case.before, shown=2, k=3).projected]
    assert len(set(map(tuple, names.values()))) > 1
    assert {name for subsample in names.values() for name in subsample} <= {"direction 0", "direction 1", "direction 2"}


def test_constant_dimensions_are_never_chosen(case):
    features = case.before.clone()
    features[:, 2:] = 0.1
    report = feature_histograms(case.source, features, shown=3)
    assert [histogram.name for histogram in report.raw] == ["raw dimension 0", "raw dimension 1"]


def test_invalid_arguments_are_rejected(case):
    broken = case.before.clone()
    broken[7] = torch.nan
    with pytest.raises(BatchError, match="1 of them not finite"):
        feature_histograms(case.source, broken)
    with pytest.raises(BatchError, match="two or more rows"):
        feature_histograms(case.source, case.before[:1])
    for option in ({"bins": 0}, {"shown": 0}):
        with pytest.raises(OptionError):
            feature_histograms(case.source, case.before, **option)
