"""Training of source models: recipes, the training loop and the objectives."""

from regtta_bench.training.loop import Objective, TrainingCheckpoint, train
from regtta_bench.training.models import HEADS, PRETRAINED_MODELS, create_model, resnet26, resnet50, tabular_mlp
from regtta_bench.training.objectives import AdversarialObjective, RotationObjective
from regtta_bench.training.recipe import (
    BIWI,
    CALIFORNIA,
    SVHN,
    SVHN_SUBSET,
    UTKFACE,
    VIT,
    Classification,
    Recipe,
    Regression,
    eval_transform,
    global_seed,
    make_seeded,
    train_transform,
)

__all__ = [
    "BIWI",
    "CALIFORNIA",
    "HEADS",
    "PRETRAINED_MODELS",
    "SVHN",
    "SVHN_SUBSET",
    "UTKFACE",
    "VIT",
    "AdversarialObjective",
    "Classification",
    "Objective",
    "Recipe",
    "Regression",
    "RotationObjective",
    "TrainingCheckpoint",
    "create_model",
    "eval_transform",
    "global_seed",
    "make_seeded",
    "resnet26",
    "resnet50",
    "tabular_mlp",
    "train",
    "train_transform",
]
