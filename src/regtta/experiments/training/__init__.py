"""Training of source models: recipes, the training loop and the objectives."""

from regtta.experiments.training.checkpoint import Checkpoint
from regtta.experiments.training.loop import train
from regtta.experiments.training.losses import Classification, Regression
from regtta.experiments.training.recipe import BIWI, CALIFORNIA, SVHN, UTKFACE, VIT, Recipe
from regtta.experiments.training.step import Objective
from regtta.experiments.training.views import plain_view, training_view

__all__ = [
    "BIWI",
    "CALIFORNIA",
    "SVHN",
    "UTKFACE",
    "VIT",
    "Checkpoint",
    "Classification",
    "Objective",
    "Recipe",
    "Regression",
    "plain_view",
    "train",
    "training_view",
]
