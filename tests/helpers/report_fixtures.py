"""Reports of a small model with special cases for figures: constant dimensions and rejected batches."""

from types import SimpleNamespace

import pytest
import torch

import regtta
from helpers import small_models
from regtta.report import analysis


@pytest.fixture(scope="session")
def reports() -> SimpleNamespace:
    model = small_models.mlp(outputs=2)
    source = regtta.collect(model, small_models.table(300).split(50))
    weight = dict(model.named_modules())[source.head].weight
    source_features = analysis.compute_features(model, [small_models.table(300)], source.head)
    target = small_models.table(120, shift=1.0, seed=2)
    before = analysis.compute_features(model, [target], source.head)
    batches = list(target.split(20))
    batches[2] = torch.full_like(batches[2], torch.nan)
    labels = small_models.table(120, inputs=2, seed=7)
    adapter = regtta.Adapter(model, regtta.SSA(k=4), source)
    return SimpleNamespace(
        subspace=analysis.subspace_report(source, weight, k=8, share=0.5),
        reconstruction=analysis.reconstruction(source, {"Source": before, "Moved": before + 0.5}),
        normality=analysis.normality_report(source, before),
        histograms=analysis.feature_histograms(source, before, bins=12),
        clouds=analysis.principal_clouds(source, source_features, {"Source": before, "Moved": before + 0.5}),
        gradients=analysis.gradient_norms(source, k=3, bins=10),
        predictions=analysis.predict_and_score(model, [(target, labels)]),
        stream=analysis.record_stream(adapter, batches, labels.split(20), directions=3),
    )
