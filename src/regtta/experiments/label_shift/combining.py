"""Signals put together by logistic regression, fitted on some source models and tested on others."""

import numpy as np

from regtta.experiments.label_shift.roc import Array

_RIDGE = 1e-2  # of standardised weights: questions that are answered perfectly have no finite ones
_STEPS = 50


class Logistic:
    """Logistic regression with a small ridge, by Newton's method: its optimum to the last digits, everywhere.

    Args:
        values: (N, F).
        positive: (N,) true or false.
    """

    def __init__(self, values: Array, positive: Array) -> None:
        self._mean, self._sd = values.mean(axis=0), values.std(axis=0) + 1e-12
        inputs = self._inputs(values)
        weights = np.zeros(inputs.shape[1])
        for _ in range(_STEPS):
            chance = _sigmoid(inputs @ weights)
            slope = inputs.T @ (chance - positive) / len(inputs) + _RIDGE * weights
            curve = (inputs * (chance * (1 - chance))[:, None]).T @ inputs / len(inputs)
            step = np.linalg.solve(curve + _RIDGE * np.eye(len(weights)), slope)
            weights = weights - step * min(1.0, 5.0 / (float(np.abs(step).max()) + 1e-300))
        self._weights = weights

    def __call__(self, values: Array) -> Array:
        """Log odds (N,)."""
        odds: Array = self._inputs(values) @ self._weights
        return odds

    def _inputs(self, values: Array) -> Array:
        return np.column_stack([np.ones(len(values)), (values - self._mean) / self._sd])


def _sigmoid(values: Array) -> Array:
    chance: Array = 0.5 * (1 + np.tanh(values / 2))
    return chance
