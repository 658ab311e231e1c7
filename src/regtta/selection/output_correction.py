"""Correction of offset and scale of a model's outputs by least squares on a few labelled samples."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regtta.errors import BatchError, ModelError
from regtta.models import Head, OutputSelection, assign_tensor, check_assignable, private_copy, select_output

CorrectionKind = Literal["none", "offset", "affine"]
CORRECTIONS: tuple[CorrectionKind, ...] = ("none", "offset", "affine")
SMALLEST_LEVERAGE_GAP = 1e-9  # of a sample that alone determines the fit


@dataclass(frozen=True)
class OutputCorrection:
    """Affine map of predictions, ``offset + scale · prediction``, per output.

    Attributes:
        offset: one value per output.
        scale: one value per output; 1 if only the offset is corrected.

    Example:
        >>> OutputCorrection((1.0,), (2.0,)).apply(torch.tensor([0.0, 3.0]))
        tensor([1., 7.])
    """

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def tensors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return offset and scale, each ``(O,)``, with the data type and on the device of ``like``."""
        offset, scale = torch.tensor([self.offset, self.scale], dtype=torch.float64).to(like).unbind()
        return offset, scale

    def apply(self, predictions: Tensor) -> Tensor:
        """Return corrected predictions ``(B,)`` or ``(B, O)``, in the shape and data type of ``predictions``."""
        outputs = 1 if predictions.ndim == 1 else predictions.shape[-1]
        if outputs != len(self.offset):
            raise BatchError(
                f"Expected predictions of {len(self.offset)} output(s), found shape {tuple(predictions.shape)}. Pass "
                "predictions of the model that the correction was fitted for."
            )
        offset, scale = self.tensors(predictions)
        return offset + scale * predictions


def fit_correction(predictions: Tensor, targets: Tensor, kind: CorrectionKind) -> tuple[OutputCorrection, Tensor]:
    """Fit a correction by least squares, and return it with its leave-one-out predictions.

    Per output, the residuals ``y − f`` are regressed on the columns of ``X``: a constant and, if ``kind`` is
    ``"affine"``, the standardised predictions. With the leverages ``h = diag(X (XᵀX)⁻¹ Xᵀ)``, the residual of sample i
    by the correction that is fitted without it is ``e_i / (1 − h_i)`` (PRESS; Allen, 1974), so that the correction is
    judged on samples that it has not seen without any refit.

    Args:
        predictions: ``(n, O)``.
        targets: ``(n, O)``.
        kind: ``"offset"`` or ``"affine"``.

    Returns:
        The correction, and for each sample the corrected prediction ``(n, O)`` by the correction fitted to the others.

    Example:
        >>> outputs = torch.linspace(0, 1, 50)[:, None]
        >>> correction, _ = fit_correction(outputs, 2 * outputs + 3, "affine")
        >>> round(correction.offset[0], 3), round(correction.scale[0], 3)
        (3.0, 2.0)
    """
    predictions, targets = predictions.double(), targets.double()
    offsets, scales, held_out = [], [], []
    for output, target in zip(predictions.T, targets.T, strict=True):
        centre, spread = output.mean(), output.std(correction=0)
        # Constant predictions have no scale to correct.
        scaled = kind == "affine" and bool(spread > 1e-12 * output.abs().max())
        columns = [torch.ones_like(output)] + ([(output - centre) / spread] if scaled else [])
        basis = torch.stack(columns, dim=1) / len(output) ** 0.5  # orthonormal, as the columns are standardised
        theta = basis.T @ (target - output)
        gap = (1 - (basis**2).sum(dim=1)).clamp_min(SMALLEST_LEVERAGE_GAP)
        held_out.append(target - (target - output - basis @ theta) / gap)
        slope = float(theta[1] / spread / len(output) ** 0.5) if scaled else 0.0
        offsets.append(float(theta[0]) / len(output) ** 0.5 - slope * float(centre))
        scales.append(1.0 + slope)
    return OutputCorrection(tuple(offsets), tuple(scales)), torch.stack(held_out, dim=1)


class CorrectedModel(nn.Module):
    """Model whose predictions are corrected; returns the predictions alone.

    Args:
        model: the model.
        correction: the correction.
        output: selection of the prediction from what the model returns.
    """

    offset: Tensor
    scale: Tensor

    def __init__(self, model: nn.Module, correction: OutputCorrection, output: OutputSelection | None = None) -> None:
        super().__init__()
        self.model = model
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
        offset, scale = correction.tensors(parameter)
        self.register_buffer("offset", offset)
        self.register_buffer("scale", scale)
        self._output = output

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the corrected predictions of the model."""
        return self.offset + self.scale * select_output(self.model(*args, **kwargs), self._output)


def correct_head(model: nn.Module, head: str, correction: OutputCorrection) -> nn.Module | None:
    """Return a copy of ``model`` whose head computes corrected outputs.

    ``W ← diag(scale) W`` and ``b ← scale·b + offset``. Returns None if the head is not one ``nn.Linear`` with one row
    per output whose weight can be set.
    """
    changed = private_copy(model)
    found = Head(changed, head)
    layer = found.linear
    if not found.is_linear or layer.out_features != len(correction.offset):
        return None
    offset, scale = correction.tensors(layer.weight)
    bias: Tensor | None = layer.bias
    try:
        check_assignable(layer, "weight")
        if bias is not None:
            check_assignable(layer, "bias")
    except ModelError:
        return None
    with torch.no_grad():
        assign_tensor(layer, "weight", scale.unsqueeze(1) * layer.weight)
        if bias is None:
            layer.bias = nn.Parameter(offset, requires_grad=layer.weight.requires_grad)
        else:
            assign_tensor(layer, "bias", scale * bias + offset)
    return changed
