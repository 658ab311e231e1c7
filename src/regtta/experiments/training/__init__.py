"""Training of source models: recipes as data, one loop, and what is trained beside the regressor."""

from regtta.experiments.training.loop import Objective, train
from regtta.experiments.training.recipe import CALIFORNIA, SVHN, Recipe

__all__ = ["CALIFORNIA", "SVHN", "Objective", "Recipe", "train"]
