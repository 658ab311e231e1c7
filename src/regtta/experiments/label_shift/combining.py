"""Combination of signals by logistic regression, fitted on some source models and tested on others."""

import numpy as np

from regtta.experiments.label_shift.roc import Array

_RIDGE = 1e-2  # on standardised weights, which are not finite for separable classes without it
_STEPS = 50


class Logistic:
    """Ridge-regularised logistic regression, fitted by Newton's method to machine precision on every platform.

    Args:
        values: ``(N, F)`` features.
        positive: ``(N,)`` labels, 0 or 1.
    """

    def __init__(self, values: Array, positive: Array) -> None:
        self._mean, self._sd = values.mean(axis=0), values.std(axis=0) + 1e-12
        inputs = self._inputs(values)
        weights = np.zeros(inputs.shape[1])
        for _ in range(_STEPS):
            probability = _sigmoid(inputs @ weights)
            gradient = inputs.T @ (probability - positive) / len(inputs) + _RIDGE * weights
            hessian = (inputs * (probability * (1 - probability))[:, None]).T @ inputs / len(inputs)
            step = np.linalg.solve(hessian + _RIDGE * np.eye(len(weights)), gradient)
            weights = weights - step * min(1.0, 5.0 / (float(np.abs(step).max()) + 1e-300))
        self._weights = weights

    def __call__(self, values: Array) -> Array:
        """Return the log odds ``(N,)``."""
        odds: Array = self._inputs(values) @ self._weights
        return odds

    def _inputs(self, values: Array) -> Array:
        return np.column_stack([np.ones(len(values)), (values - self._mean) / self._sd])


def _sigmoid(values: Array) -> Array:
    probability: Array = 0.5 * (1 + np.tanh(values / 2))
    return probability
