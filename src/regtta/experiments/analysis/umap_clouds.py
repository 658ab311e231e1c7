"""UMAP embedding of the features, fitted once on the source and shared by all methods."""

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
    """Fit UMAP on source features projected onto the leading directions, then transform each method's target features.

    Distances in UMAP coordinates are not meaningful, so none are computed. The first call takes some seconds to
    compile UMAP.

    Args:
        source: source statistics that define the mean and the directions.
        source_features: features of the source model on source data, (N, D).
        targets: features of the adapted model on target data by method, each (M, D).
        k: number of leading directions to project onto, at most the rank.
        neighbours: number of neighbours in UMAP, less than the number of source points.
        most: maximum number of points per cloud.
        seed: seed of the subsampling and of UMAP.
    """
    check_count("neighbours", neighbours)
    subspace = source.top(min(k, source.rank))
    # UMAP does not accept non-finite values.
    whole = {name: finite_features(source, rows, f"the features of {name!r}") for name, rows in targets.items()}
    points = array(subspace.project(drawn(finite_features(source, source_features), most, seed)))
    if len(points) <= neighbours:
        raise BatchError(
            f"Expected more source points than neighbours={neighbours}, found {len(points)}. Pass more features, or "
            "fewer neighbours."
        )
    moved = {name: array(subspace.project(drawn(rows, most, seed))) for name, rows in whole.items()}
    with _torch_threads_kept():
        umap = import_optional("umap", "analysis", "UMAP")
        # With a seed, UMAP runs on one core anyway, and warns unless n_jobs=1.
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
    """Restore torch's number of threads, which UMAP's compiler changes for all of OpenMP."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
