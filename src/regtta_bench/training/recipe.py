"""Training recipes as data: losses, augmentation, seeds and the paper's settings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from regtta.models import crop_windows
from regtta.options import (
    check_bool,
    check_choice,
    check_non_negative,
    check_non_negative_int,
    check_positive,
    check_positive_int,
)
from regtta_bench.data import centre_crop, colour_jitter, crop_and_flip, normalise


class _Constant:
    """Base of objectives without modules or schedules of their own."""

    modules: list[nn.Module] = []  # noqa: RUF012 - an empty constant

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: the objective is constant."""


class Regression(_Constant):
    """Mean squared error of predictions ``(B, O)``."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``mean (f(x) − y)²``."""
        return functional.mse_loss(model(inputs), targets)


class Classification(_Constant):
    """Cross-entropy of logits ``(B, C)`` and class indices ``(B, 1)``."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``mean −log softmax(f(x))_y``."""
        return functional.cross_entropy(model(inputs), targets.squeeze(1).long())


Optimizer = Literal["adam", "adamw"]
LearningRateSchedule = Literal["constant", "one_cycle"]
# Fields added after results were committed: left out at their defaults, so that the keys of those results stay valid.
_ADDED_LATER = ("optimizer", "schedule")


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one training, and the preprocessing of its inputs.

    Args:
        epochs: passes over the source data; an incomplete last batch of an epoch is dropped.
        batch_size: samples per step.
        lr: learning rate; the peak of the cycle for ``schedule="one_cycle"``.
        weight_decay: weight decay of the optimizer.
        crop_padding: padding in pixels from which images are randomly cropped back to their size; 0 for no cropping.
        photo_side: side in pixels to which photographs (bytes) are cropped, at random and mirrored in training, before
            they are normalised; 0 for inputs that are not photographs.
        colour_jitter: strength of the random colour changes of photographs in training; 0 for none.
        resized: side in pixels to which images are resized before the model sees them; 0 to keep their size.
        mixed_precision: train in bfloat16 on a GPU, where that is safe.
        optimizer: Adam, or AdamW with decoupled weight decay.
        schedule: constant learning rate, or one cycle over the whole training
            (:class:`torch.optim.lr_scheduler.OneCycleLR`).
    """

    epochs: int = 100
    batch_size: int = 64
    lr: float = 1e-4
    weight_decay: float = 5e-4
    crop_padding: int = 0
    photo_side: int = 0
    colour_jitter: float = 0.0
    resized: int = 0
    mixed_precision: bool = False
    optimizer: Optimizer = "adam"
    schedule: LearningRateSchedule = "constant"

    def __post_init__(self) -> None:
        """Validate the fields."""
        check_positive_int("epochs", self.epochs)
        check_positive_int("batch_size", self.batch_size)
        check_positive("lr", self.lr)
        check_bool("mixed_precision", self.mixed_precision)
        for name in ("weight_decay", "colour_jitter"):
            check_non_negative(name, getattr(self, name))
        for name in ("crop_padding", "photo_side", "resized"):
            check_non_negative_int(name, getattr(self, name))
        check_choice("the optimizer", self.optimizer, get_args(Optimizer))
        check_choice("the schedule", self.schedule, get_args(LearningRateSchedule))

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values, without those added later where they have their defaults.

        Example:
            >>> "optimizer" in Recipe().to_dict(), Recipe(optimizer="adamw").to_dict()["optimizer"]
            (False, 'adamw')
        """
        unchanged = {f.name for f in fields(self) if f.name in _ADDED_LATER and getattr(self, f.name) == f.default}
        return {name: value for name, value in asdict(self).items() if name not in unchanged}


SVHN = Recipe(crop_padding=4)
# As many optimizer steps on 10,000 digits as 100 epochs are on the whole of SVHN: the subspace of the source features
# depends on the number of steps.
SVHN_SUBSET = Recipe(epochs=733, crop_padding=4)
CALIFORNIA = Recipe(lr=1e-3)
UTKFACE = Recipe(photo_side=224, mixed_precision=True)
BIWI = Recipe(photo_side=224, colour_jitter=0.3, mixed_precision=True)
VIT = Recipe(crop_padding=4, resized=224, mixed_precision=True)


def eval_transform(inputs: Tensor, recipe: Recipe) -> Tensor:
    """Return ``inputs`` preprocessed without augmentation, as for evaluation.

    Example:
        >>> eval_transform(torch.zeros(2, 3, 256, 256, dtype=torch.uint8), Recipe(photo_side=224)).shape
        torch.Size([2, 3, 224, 224])
    """
    if recipe.photo_side:
        inputs = normalise(centre_crop(inputs, recipe.photo_side))
    return _resize(inputs, recipe)


def train_transform(inputs: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Return ``inputs`` preprocessed for training: randomly cropped, mirrored and colour-jittered by the recipe."""
    if recipe.photo_side:
        inputs = crop_and_flip(inputs, generator, recipe.photo_side)
        if recipe.colour_jitter:
            inputs = colour_jitter(inputs, generator, recipe.colour_jitter)
        inputs = normalise(inputs)
    if recipe.crop_padding:
        inputs = random_crop(inputs, recipe.crop_padding, generator)
    return _resize(inputs, recipe)


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Pad images ``(B, C, H, W)`` with ``padding`` black pixels, and crop each back to its size at random."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    corner = torch.randint(2 * padding + 1, (2, count, 1), generator=generator)
    return crop_windows(padded, torch.arange(height) + corner[0], torch.arange(width) + corner[1])


def _resize(images: Tensor, recipe: Recipe) -> Tensor:
    if not recipe.resized:
        return images
    return functional.interpolate(images, size=(recipe.resized,) * 2, mode="bilinear", align_corners=False)


M = TypeVar("M", bound=nn.Module)


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed torch's global CPU generator within the block, and restore its state afterwards.

    Use it for functions that accept no generator, such as the initialisation of a layer.
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed every accelerator, whose state is not restored here.
        torch.default_generator.manual_seed(seed)
        yield


def make_seeded(make: Callable[[], M], seed: int) -> M:
    """Return ``make()``, called with the global generator seeded; its state is restored afterwards.

    Example:
        >>> first, second = (make_seeded(lambda: nn.Linear(2, 1), seed=0) for _ in range(2))
        >>> torch.equal(first.weight, second.weight)
        True
    """
    with global_seed(seed):
        return make()
