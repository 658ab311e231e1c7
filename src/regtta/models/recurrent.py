"""Recurrent layers on a GPU: cuDNN computes their gradients in training mode only."""

from contextlib import AbstractContextManager, nullcontext

from torch import nn


def recurrent_training(model: nn.Module) -> AbstractContextManager[object]:
    """Return a reusable context manager that sets recurrent layers to training mode without dropout.

    Their outputs are those of eval mode. A model without recurrent layers is left alone.

    Example:
        >>> layer = nn.LSTM(2, 3, num_layers=2, dropout=0.5).eval()
        >>> with recurrent_training(layer):
        ...     layer.training, layer.dropout
        (True, 0.0)
        >>> layer.training, layer.dropout
        (False, 0.5)
    """
    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    return _RecurrentTraining(layers) if layers else nullcontext()


class _RecurrentTraining:
    def __init__(self, layers: list[nn.RNNBase]) -> None:
        self._layers = layers

    def __enter__(self) -> None:
        self._before = [(layer.training, layer.dropout) for layer in self._layers]
        for layer in self._layers:
            layer.training, layer.dropout = True, 0.0

    def __exit__(self, *_: object) -> None:
        for layer, (training, dropout) in zip(self._layers, self._before, strict=True):
            layer.training, layer.dropout = training, dropout
