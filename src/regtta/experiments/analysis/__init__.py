"""What the paper measures about the feature space, on any model."""

from regtta.experiments.analysis.correlation import weight_correlation

__all__ = ["weight_correlation"]
