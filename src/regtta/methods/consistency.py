"""Consistency: equal predictions for an image and a slightly shifted copy.

A term to add to another method, ``regtta.create_method("ssa+7*consistency")``: alignment of moments says nothing about
single samples, and a shift by one or two pixels changes no label. In the tradition of Sajjadi, Javanmardi and Tasdizen,
"Regularization With Stochastic Transformations and Perturbations for Deep Semi-Supervised Learning", NeurIPS 2016; here
the prediction for the image itself is the target and has no gradient.

The squared difference is divided by the variance of the output on the source, so that one weight suits labels in any
unit. For images only: what is a small change of a table depends on the scales of its columns.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.errors import BatchError, ModelError, StatisticsError
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.rules import Batch, RandomRule, Rule
from regtta.models import shift_pixels
from regtta.options import check_non_negative_int, check_positive_int


@dataclass(frozen=True, kw_only=True)
class Consistency(GradientMethod):
    """Minimisation of the change of the output under small shifts of the image.

    ``L = mean (f(T x) − stopgrad f(x))² / Var_source(f)`` over samples and outputs, T a random shift of each image by
    up to ``pixels`` rows and columns, edges repeated.

    Args:
        pixels: largest shift, in rows and in columns.
        seed: of the random shifts.

    Example:
        >>> import regtta
        >>> regtta.create_method("ssa+7*consistency", pixels=1).weights
        (1.0, 7.0)
    """

    pixels: int = 2
    seed: int = 0

    name: ClassVar[str] = "consistency"
    paper: ClassVar[str] = "after Sajjadi et al., NeurIPS 2016"
    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_positive_int("pixels", self.pixels)
        check_non_negative_int("seed", self.seed)

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, with the variance of the outputs on the source."""
        _, variance = context.require_source().output_moments(context.require_head().weight)
        if not bool((variance > 0).all()):
            raise StatisticsError(
                f"Expected outputs that vary on the source, found variances {variance.tolist()}. Check that the model "
                "does not ignore its input, and collect again over data that differs."
            )
        return _Shifts(variance.to(context.device, context.dtype), self.pixels, self.seed)


class _Shifts(RandomRule):
    def __init__(self, variance: Tensor, pixels: int, seed: int) -> None:
        super().__init__(seed)
        self.variance = variance
        self.pixels = pixels

    def update(self, batch: Batch) -> Tensor:
        """Return the mean squared change of the outputs, in variances of the source outputs."""
        images = batch.require_one_input("consistency")
        if images.ndim != 4 or not images.is_floating_point() or min(images.shape[-2:]) <= self.pixels:
            raise BatchError(
                f"consistency shifts images: expected float inputs (B, C, H, W) of more than {self.pixels} pixels per "
                f"side, found shape {tuple(images.shape)} and dtype {images.dtype}. For other inputs, use a method "
                "such as ssa."
            )
        shifted = batch.gather(batch.forward(shift_pixels(images, self.pixels, self.generator)).outputs)
        return (self._by_output(shifted - batch.outputs.detach()) ** 2 / self.variance).mean()

    def _by_output(self, change: Tensor) -> Tensor:
        """Return a change of the outputs as ``(N, O)``, one column per output of the head."""
        outputs = len(self.variance)
        if change.shape[1:].numel() % outputs:
            raise ModelError(
                f"Expected predictions of {outputs} outputs, the width of the head, found shape {tuple(change.shape)}. "
                "Use a method that does not compare predictions, such as ssa."
            )
        return change.to(torch.promote_types(change.dtype, self.variance.dtype)).reshape(-1, outputs)
