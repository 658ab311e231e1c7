"""Adapters that have learned from a stream."""

import regtta
from helpers import small_models


def make_adapted_adapter(make=small_models.mlp, rows=small_models.table, method=None, batches=3):
    """Return an adapter that has learned from ``batches`` batches and rejected one of a single row."""
    model = make()
    source = regtta.collect(model, rows(200).split(50))
    adapter = regtta.Adapter(model, method or regtta.SSA(k=4, lr=0.05), source)
    for x in rows(16 * batches, shift=0.5, scale=1.5, seed=3).split(16):
        adapter.adapt(x)
    adapter.adapt(rows(1))
    return adapter
