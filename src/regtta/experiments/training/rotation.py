"""Source objective of test-time training: the regressor and a rotation classifier on its features, trained jointly.

Sun et al., ICML 2020: the sum of the regression loss on the original images and of the classifier's cross-entropy on
the same images, each rotated by a random multiple of 90°.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from regtta.experiments.training.seeding import seeded
from regtta.features import FeatureModel
from regtta.methods.ttt import ROTATIONS, rotated


class RotationObjective:
    """Mean squared error plus the cross-entropy of a linear rotation classifier, ``branch``.

    Args:
        head: name of the model's head.
        width: number of its features.
        seed: seed of the branch's initial weights.
    """

    def __init__(self, head: str, width: int, *, seed: int) -> None:
        self._head = head
        self.branch = seeded(lambda: nn.Linear(width, ROTATIONS), seed)
        self.modules: list[nn.Module] = [self.branch]

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of both losses, from one forward pass over the images and their rotated copies."""
        turns = torch.randint(ROTATIONS, (len(inputs),), device=inputs.device)
        forward = FeatureModel(model, self._head)(torch.cat([inputs, rotated(inputs, turns)]))
        regression = functional.mse_loss(forward.outputs[: len(inputs)], targets)
        return regression + functional.cross_entropy(self.branch(forward.features[len(inputs) :]), turns)

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: the objective is constant."""
