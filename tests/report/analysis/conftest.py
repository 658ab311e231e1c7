"""Features of a small model, of a shifted target and of the model adapted to it."""

from types import SimpleNamespace

import pytest

import regtta
from helpers import small_models
from regtta.report.analysis import compute_features


@pytest.fixture(scope="session")
def case() -> SimpleNamespace:
    model = small_models.mlp(outputs=2)
    source = regtta.collect(model, small_models.table(300).split(50))
    target = small_models.table(200, shift=1.0, scale=1.5, seed=2)
    adapter = regtta.Adapter(model, regtta.SSA(k=6), source)
    for batch in target.split(40):
        adapter.adapt(batch)
    return SimpleNamespace(
        model=model,
        source=source,
        target=target,
        weight=dict(model.named_modules())[source.head].weight,
        source_features=compute_features(model, [small_models.table(300)], source.head),
        before=compute_features(model, [target], source.head),
        after=compute_features(adapter.export(), [target], source.head),
    )
