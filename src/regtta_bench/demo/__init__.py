"""Demo: regression of handwritten digits under five image degradations.

It trains a small convolutional regressor on the digits of scikit-learn, and compares the methods on the same degraded
streams.
"""

from regtta_bench.demo.demo_recipe import DemoRecipe
from regtta_bench.demo.demo_run import DemoResult, run_demo

__all__ = ["DemoRecipe", "DemoResult", "run_demo"]
