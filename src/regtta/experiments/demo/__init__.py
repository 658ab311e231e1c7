"""Demo: regression of handwritten digits under five image degradations.

It trains a small convolutional regressor on the digits of scikit-learn, and compares the methods on the same degraded
streams.
"""

from regtta.experiments.demo.recipe import Recipe
from regtta.experiments.demo.running import DemoResult, run_demo

__all__ = ["DemoResult", "Recipe", "run_demo"]
