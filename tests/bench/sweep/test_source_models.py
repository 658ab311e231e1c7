import dataclasses

import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.errors import MismatchError
from regtta_bench.sweep.source_models import SourceModelCache, SourceSpec
from regtta_bench.training import CALIFORNIA, Recipe

SPEC = SourceSpec("california", "mlp", "regression", CALIFORNIA, seed=0)


def test_every_field_changes_the_key():
    keys = {
        SPEC.key,
        dataclasses.replace(SPEC, seed=1).key,
        dataclasses.replace(SPEC, data="other").key,
        dataclasses.replace(SPEC, objective="rotation").key,
        dataclasses.replace(SPEC, recipe=Recipe(lr=1e-3, epochs=99)).key,
    }
    assert len(keys) == 5


def test_options_added_to_recipes_leave_the_keys_of_earlier_models_unchanged():
    assert SPEC.key == "0c94c3d1fdd36fb1"


def test_a_model_is_trained_once(tmp_path):
    models, trained = SourceModelCache(tmp_path / "sources"), []

    def get(seed=0):
        parts = {"model": small_models.mlp(), "branch": nn.Linear(12, 4)}

        def train():
            trained.append(seed)
            with torch.no_grad():
                parts["model"][0].weight += 1 + seed
                parts["branch"].bias.fill_(7 + seed)

        found = models.load_or_train(dataclasses.replace(SPEC, seed=seed), parts, train)
        return found, parts

    (first_found, first), (second_found, second), (other_found, other) = get(), get(), get(1)
    assert (first_found, second_found, other_found) == (False, True, False)
    assert trained == [0, 1]
    for name in first:
        for key, value in first[name].state_dict().items():
            assert torch.equal(second[name].state_dict()[key], value)
    assert (second["branch"].bias == 7).all()
    assert (other["branch"].bias == 8).all()
    with pytest.raises(MismatchError, match="Remove the file to train again"):
        models.load_or_train(SPEC, {"model": small_models.mlp(width=9)}, lambda: None)


def test_interrupted_training_leaves_no_model(tmp_path):
    models = SourceModelCache(tmp_path)

    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.load_or_train(SPEC, {"model": small_models.mlp()}, broken)
    assert not models.path(SPEC).exists()
