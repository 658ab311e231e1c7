"""UMAP's picture of the features, learned on the source once and shared by all methods."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.experiments.analysis.clouds import Clouds
from regtta.experiments.analysis.features import drawn, finite_features
from regtta.experiments.analysis.reports import array
from regtta.optional_imports import import_optional
from regtta.options import check_count
from regtta.statistics import SourceStatistics


def umap_clouds(
    source: SourceStatistics,
    source_features: Tensor,
    targets: Mapping[str, Tensor],
    *,
    k: int = 100,
    neighbours: int = 15,
    most: int = 1000,
    seed: int = 0,
) -> Clouds:
    """Fit UMAP on source features projected onto the leading directions, then map each method's target features.

    Distances in UMAP's coordinates mean little, so none are given. The first call compiles for some seconds.

    Args:
        source: whose mean and directions.
        source_features: (N, D) of the source model on source data.
        targets: (M, D) by method, of the adapted model on target data.
        k: leading directions to project onto, at most the rank.
        neighbours: of each point that UMAP keeps near, fewer than the points of the source.
        most: points drawn of each cloud.
        seed: of the draws and of UMAP.
    """
    check_count("neighbours", neighbours)
    subspace = source.top(min(k, source.rank))
    # UMAP has no place for what is not finite.
    whole = {name: finite_features(source, rows, f"those of {name!r}") for name, rows in targets.items()}
    points = array(subspace.project(drawn(finite_features(source, source_features), most, seed)))
    if len(points) <= neighbours:
        raise BatchError(
            f"Expected more source points than neighbours={neighbours}, found {len(points)}. Give more features, or "
            "fewer neighbours."
        )
    moved = {name: array(subspace.project(drawn(rows, most, seed))) for name, rows in whole.items()}
    with _torch_threads_kept():
        umap = import_optional("umap", "analysis", "UMAP")
        # One job: with a seed UMAP runs on one core anyway, and warns where it was not asked to.
        mapping = umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit(points)
        mapped = {name: mapping.transform(cloud).astype(np.float64) for name, cloud in moved.items()}
    return Clouds(
        axes=("UMAP 1 (no unit)", "UMAP 2 (no unit)"),
        source=mapping.embedding_.astype(np.float64),
        targets=mapped,
        seed=seed,
    )


@contextmanager
def _torch_threads_kept() -> Iterator[None]:
    """UMAP's compiler sets the number of threads for all of OpenMP, torch included, and leaves it so."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
