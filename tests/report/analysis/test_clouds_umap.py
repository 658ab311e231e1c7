import sys

import numpy as np
import pytest
import torch

from regtta.errors import BatchError, MissingExtraError, OptionError
from regtta.report.analysis import umap_clouds


def test_the_map_is_fitted_on_the_source_and_shared(case):
    """The features of the source, passed as a target, get the coordinates of the source."""
    threads = torch.get_num_threads()
    targets = {"itself": case.source_features, "Source": case.before[:50]}
    clouds = umap_clouds(case.source, case.source_features, targets, k=5, max_points=120, seed=1)
    assert clouds.source.shape == clouds.targets["itself"].shape == (120, 2)
    assert clouds.targets["Source"].shape == (50, 2)
    spread = clouds.source.std()
    assert np.abs(clouds.targets["itself"] - clouds.source).mean() < 0.1 * spread
    assert np.abs(clouds.targets["itself"] - np.roll(clouds.source, 1, axis=0)).mean() > 0.3 * spread
    assert clouds.transport is None
    # UMAP's compiler sets torch's number of threads to the number of cores.
    assert torch.get_num_threads() == threads
    assert clouds.axes[0].startswith("UMAP")


def test_invalid_inputs_of_umap_are_rejected(case):
    with pytest.raises(BatchError, match="more source points than neighbours=15, found 10"):
        umap_clouds(case.source, case.source_features[:10], {})
    with pytest.raises(BatchError, match="'FR'.*200 of them not finite"):
        umap_clouds(case.source, case.source_features, {"FR": torch.full_like(case.before, torch.nan)})
    with pytest.raises(OptionError, match="neighbours"):
        umap_clouds(case.source, case.source_features, {}, neighbours=0)


def test_without_umap_the_error_names_the_extra(case, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r'umap-learn.*pip install "regtta\[analysis\]"'):
        umap_clouds(case.source, case.source_features, {})
