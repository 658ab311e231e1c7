"""Test-time training's branch: the regressor and a rotation classifier on its features, trained together.

Sun et al., ICML 2020: the sum of the regression loss on the images as they are and of the branch's cross-entropy on the
same images, each turned by a random multiple of 90°.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from regtta.experiments.training.seeding import seeded
from regtta.features import FeatureModel
from regtta.methods.ttt import ROTATIONS, rotated


class RotationObjective:
    """Regression plus rotation prediction by one linear layer, which is ``branch``.

    Args:
        head: name of the model's head.
        width: of its features.
        seed: of the branch's first weights.
    """

    def __init__(self, head: str, width: int, *, seed: int) -> None:
        self._head = head
        self.branch = seeded(lambda: nn.Linear(width, ROTATIONS), seed)
        self.modules: list[nn.Module] = [self.branch]

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Both losses from one forward pass over the images and their turned copies."""
        turns = torch.randint(ROTATIONS, (len(inputs),), device=inputs.device)
        forward = FeatureModel(model, self._head)(torch.cat([inputs, rotated(inputs, turns)]))
        regression = functional.mse_loss(forward.outputs[: len(inputs)], targets)
        return regression + functional.cross_entropy(self.branch(forward.features[len(inputs) :]), turns)

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Nothing changes over the training."""
