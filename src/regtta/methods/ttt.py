"""TTT: test-time training by rotation prediction.

Sun, Wang, Liu, Miller, Efros and Hardt, "Test-Time Training with Self-Supervision for Generalization under
Distribution Shifts", ICML 2020, as used by Adachi et al., ICLR 2025: a linear branch from the features to four logits,
trained jointly with the regressor on the source, predicts the multiple of 90° by which an image was rotated. At test
time the extractor minimises the loss of the branch, which stays fixed.

Choices where the paper gives no details: the whole extractor is trained, BatchNorm is in batch mode, and each image is
rotated by a random multiple of 90°.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from regtta.errors import BatchError, ModelError, OptionError
from regtta.methods.base import GradientMethod, MethodContext, OptimizerFactory, OptimizerName
from regtta.methods.rules import Batch, RandomRule, Rule
from regtta.models import Trainable
from regtta.options import check_non_negative_int
from regtta.statistics import ConstantStatistics, StatisticsCollector

ROTATIONS = 4


@dataclass(frozen=True, kw_only=True)
class TTT(GradientMethod):
    """Minimisation of the loss of a branch that predicts image rotations.

    ``L = mean_i CE(branch(g(rot(x_i, r_i))), r_i)``, ``r_i`` random in {0°, 90°, 180°, 270°}.

    Args:
        branch: linear layer (4 × D) trained jointly with the model. ``collect(..., methods=[TTT(branch=layer)])``
            stores it with the statistics, from which ``TTT()`` restores it.
        seed: of the random rotations.

    Example:
        >>> TTT().optimizer
        'sgd'
    """

    branch: nn.Linear | None = None
    seed: int = 0
    optimizer: OptimizerName | OptimizerFactory = "sgd"
    trainable: Trainable = "extractor"

    name: ClassVar[str] = "ttt"
    paper: ClassVar[str] = "Sun et al., ICML 2020"
    needs_head: ClassVar[bool] = True
    extra_statistics: ClassVar[str] = "a branch trained with the model"
    revision: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_non_negative_int("seed", self.seed)
        if self.branch is not None and not isinstance(self.branch, nn.Linear):
            raise OptionError(
                f"Expected branch to be the nn.Linear that was trained with the model, found {self.branch!r}."
            )

    def statistics_collectors(self) -> Mapping[str, StatisticsCollector]:
        """Return the collector that stores the weights of the branch; it needs no pass over the data."""
        if self.branch is None:
            raise ModelError(
                "There is no branch to store: it is trained together with the model, never collected. Pass "
                "TTT(branch=<the trained linear layer>)."
            )
        return {self.name: ConstantStatistics(_values(self.branch))}

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, after validating the shape of the branch."""
        weight, bias = self._branch(context)
        width = context.require_head().in_features
        if tuple(weight.shape) != (ROTATIONS, width):
            raise ModelError(
                f"The branch does not fit {type(context.model).__name__}: expected a linear layer from {width} "
                f"features to {ROTATIONS} rotations, found weights of shape {tuple(weight.shape)}."
            )
        dtype = context.require_head().weight.dtype
        return _Rotations(weight.to(context.device, dtype), bias.to(context.device, dtype), self.seed)

    def _branch(self, context: MethodContext) -> tuple[Tensor, Tensor]:
        """Return weight ``(4, D)`` and bias ``(4,)`` of the given branch, else of the one in the statistics."""
        if self.branch is None:
            return context.extra(self.name, "weight"), context.extra(self.name, "bias")
        values = _values(self.branch)
        return values["weight"], values["bias"]


def _values(branch: nn.Linear) -> dict[str, Tensor]:
    bias = branch.bias.detach() if branch.bias is not None else torch.zeros(branch.out_features)
    return {"weight": branch.weight.detach(), "bias": bias}


class _Rotations(RandomRule):
    def __init__(self, weight: Tensor, bias: Tensor, seed: int) -> None:
        super().__init__(seed)
        self.weight = weight
        self.bias = bias

    def update(self, batch: Batch) -> Tensor:
        """Return the rotation-prediction loss on randomly rotated images."""
        inputs = batch.require_one_input("ttt")
        turns = torch.randint(ROTATIONS, (len(inputs),), generator=self.generator).to(inputs.device)
        features = batch.forward(rotate_images(inputs, turns)).features
        logits = functional.linear(features, self.weight, self.bias)
        return batch.gather(functional.cross_entropy(logits, turns, reduction="none")).mean()


def rotate_images(images: Tensor, turns: Tensor) -> Tensor:
    """Return images ``(B, C, S, S)``, each rotated by its multiple ``turns`` ``(B,)`` of 90°.

    Example:
        >>> rotate_images(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([1])).tolist()
        [[[[2, 4], [1, 3]]]]
    """
    if images.ndim != 4 or images.shape[-1] != images.shape[-2]:
        raise BatchError(
            f"ttt rotates square images: expected inputs of shape (B, C, S, S), found {tuple(images.shape)}. For other "
            "inputs, use a method such as ssa."
        )
    return rotation_table(images)[turns, torch.arange(len(images), device=images.device)]


def rotation_table(images: Tensor) -> Tensor:
    """Return the images rotated by 0°, 90°, 180° and 270°, ``(4, B, C, S, S)``."""
    return torch.stack([torch.rot90(images, turn, dims=(2, 3)) for turn in range(ROTATIONS)])
