import json

import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from regtta.errors import OptionError
from regtta.report.analysis import gradient_norms


def test_norms_are_those_of_finite_differences(case):
    report = gradient_norms(case.source, k=4)
    subspace = case.source.top(4)
    z, step = small_models.numpy64(case.before)[:1], 1e-4
    for d in range(12):
        moved = z.copy()
        moved[0, d] += step
        gap = subspace.project(torch.from_numpy(moved)) - subspace.project(torch.from_numpy(z))
        assert report.norms[d] == pytest.approx(np.linalg.norm(gap.numpy()) / step, abs=1e-6)


@pytest.mark.parametrize("k", [1, 3, "auto"])
def test_squares_add_up_to_the_number_of_directions(case, k):
    report = gradient_norms(case.source, k=k)
    assert (report.norms**2).sum() == pytest.approx(report.k)
    assert report.k == (case.source.rank if k == "auto" else k)


def test_the_histogram_counts_every_dimension_once():
    features = torch.cat([small_models.table(50, inputs=3), torch.zeros(50, 2)], dim=1)
    source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(5, 1)), [features])
    report = gradient_norms(source, k=5, bins=4)
    # Three dimensions vary and span the subspace; two are constant.
    assert report.norms == pytest.approx([1, 1, 1, 0, 0])
    assert report.counts.tolist() == [2, 0, 0, 3]
    assert report.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["k"] == 3


def test_without_clipping_all_directions_are_used_as_in_the_paper():
    features = torch.cat([small_models.table(50, inputs=3), torch.zeros(50, 2)], dim=1)
    source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(5, 1)), [features])
    assert gradient_norms(source, k=5, clip=False).norms == pytest.approx(np.ones(5))
    with pytest.raises(OptionError, match="between 1 and 5"):
        gradient_norms(source, k=6, clip=False)
    with pytest.raises(OptionError, match="bins"):
        gradient_norms(source, bins=0)
