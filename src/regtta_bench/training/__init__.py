"""Training of source models: recipes, the training loop and the objectives."""

from regtta_bench.training.loop import Checkpoint, Objective, train
from regtta_bench.training.models import FROM_IMAGENET, HEADS, model_of, resnet26, resnet50, tabular_mlp
from regtta_bench.training.objectives import AdversarialObjective, RotationObjective
from regtta_bench.training.recipe import (
    BIWI,
    CALIFORNIA,
    SVHN,
    UTKFACE,
    VIT,
    Classification,
    Recipe,
    Regression,
    plain_view,
    seeded,
    seeded_globally,
    training_view,
)

__all__ = [
    "BIWI",
    "CALIFORNIA",
    "FROM_IMAGENET",
    "HEADS",
    "SVHN",
    "UTKFACE",
    "VIT",
    "AdversarialObjective",
    "Checkpoint",
    "Classification",
    "Objective",
    "Recipe",
    "Regression",
    "RotationObjective",
    "model_of",
    "plain_view",
    "resnet26",
    "resnet50",
    "seeded",
    "seeded_globally",
    "tabular_mlp",
    "train",
    "training_view",
]
