"""Adapters, streams, evidence and signals to test monitors with."""

import torch

import regtta
from helpers import small_models
from regtta.monitoring import Evidence, FeatureShift, OutputShift, Signals


def adapter(method=None, model=None, rows=2000, **options):
    model = model or small_models.mlp()
    source = regtta.collect(
        model, small_models.table(rows, seed=5).split(100), head="6" if isinstance(model, torch.nn.Sequential) else None
    )
    return regtta.Adapter(model, method or regtta.SSA(k=4), source, **options)


def stream(batches, size=32, **options):
    return small_models.table(batches * size, **{"seed": 9, **options}).split(size)


def evidence(**changes):
    values = {
        "source": FeatureShift((0.0, 0.0), (1.0, 1.0)),
        "adapted": FeatureShift((0.0, 0.0), (1.0, 1.0)),
        "beyond_chance": 0.1,
        "reweighting": 0.0,
        "steadiness": 0.3,
        "outputs_source": OutputShift((0.0,), (1.0,)),
        "outputs_adapted": OutputShift((0.0,), (1.0,)),
        "disagreement": 0.0,
    }
    return Evidence(**{**values, **changes})


def signals(index=0, **changes):
    values = {
        "samples": 32,
        "learned": True,
        "reason": "",
        "returned": "",
        "loss": 1.5,
        "displacement": 0.01,
        "count": 100.0,
        "evidence": evidence(),
        "batches_since_helped": 0,
        "risk": 0.2,
    }
    return Signals(index=index, **{**values, **changes})
