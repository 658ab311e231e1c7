"""The demo: handwritten digits read as numbers, while the scanner degrades.

Digits that ship with scikit-learn, a small convolutional regressor trained on the spot, five
degradations, and the methods side by side on the same streams.
"""

from regtta.experiments.demo.recipe import Recipe
from regtta.experiments.demo.running import DemoResult, run_demo

__all__ = ["DemoResult", "Recipe", "run_demo"]
