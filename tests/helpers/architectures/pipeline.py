"""The whole use of the library on one model: collect, adapt, predict, export and resume."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import regtta
from helpers import small_models
from helpers.architectures.entry import ROWS, Architecture
from regtta.persistence import save_model
from regtta.persistence.state_files import read_state, write_state

METHOD = regtta.SSA(k=4, lr=1e-2)  # for small models


@dataclass
class Outcome:
    """Results of one model.

    Attributes:
        model: the source model.
        snapshot: its weights and modes before anything was done with it.
        adapter: the adapter after the target batches.
        source: the statistics, read from their file.
        steps: steps on the target batches.
        before: predictions of the source model on the last target batch.
        after: predictions of the adapted model on it.
        features: features of the adapted model on it.
        reloaded: predictions of a new model with the exported weights.
        resumed: predictions of a new adapter with the saved state.
        continued: predictions of the next step, of the adapter and of the new one.
        moved: names of the parameters that differ from those of the source model.
    """

    model: nn.Module
    snapshot: dict[str, object]
    adapter: regtta.Adapter
    source: regtta.SourceStatistics
    steps: list[regtta.Step]
    before: Tensor
    after: Tensor
    features: Tensor
    reloaded: Tensor
    resumed: Tensor
    continued: tuple[Tensor, Tensor]
    moved: list[str]


def make_adapter(
    entry: Architecture, model: nn.Module, source: regtta.SourceStatistics | Path | None = None
) -> regtta.Adapter:
    """Return an adapter of ``model``, with statistics of the source batches unless others are given."""
    if source is None:
        source = regtta.collect(model, entry.source_batches(), **entry.interface)
    return regtta.Adapter(model, METHOD, source, **entry.interface)


def run_pipeline(entry: Architecture, folder: Path) -> Outcome:
    """Collect, save and load the statistics, adapt, predict, export the weights, and resume from a saved state."""
    model, targets = entry.make(), entry.target_batches()
    snapshot = small_models.model_snapshot(model)
    source_file = folder / "source.safetensors"
    regtta.collect(model, entry.source_batches(), **entry.interface).save(source_file)
    adapter = make_adapter(entry, model, source_file)
    before = adapter.predict(targets[-1])
    steps = list(adapter.run(targets))
    after, features = adapter.predict(targets[-1]), adapter.features(targets[-1])

    write_state(folder / "state.safetensors", adapter.state_dict())
    other = make_adapter(entry, model, source_file)
    other.load_state_dict(read_state(folder / "state.safetensors"))
    resumed = other.predict(targets[-1])
    reloaded = _reload(entry, adapter, folder, targets[-1])
    moved = _moved(model, adapter.model)
    extra = entry.draw(ROWS, 14, 1.0)
    continued = adapter.adapt(extra).predictions, other.adapt(extra).predictions
    source = regtta.SourceStatistics.load(source_file)
    return Outcome(
        model, snapshot, adapter, source, steps, before, after, features, reloaded, resumed, continued, moved
    )


def _reload(entry: Architecture, adapter: regtta.Adapter, folder: Path, batch: Any) -> Tensor:
    """Return the predictions of a new model with the exported weights."""
    save_model(folder / "adapted.safetensors", adapter.export(), adapter.provenance())
    fresh = entry.make(seed=1)
    fresh.load_state_dict(load_file(folder / "adapted.safetensors"))
    return regtta.Adapter(fresh, regtta.NoAdaptation(), **entry.interface).predict(batch)


def _moved(source: nn.Module, adapted: nn.Module) -> list[str]:
    before = dict(source.named_parameters())
    return [name for name, value in adapted.named_parameters() if not torch.equal(value, before[name])]
