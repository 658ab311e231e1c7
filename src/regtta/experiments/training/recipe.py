"""Hyperparameters of source-model training, as in the paper's appendix."""

from dataclasses import asdict, dataclass, fields
from typing import Literal, get_args

from regtta.options import check_bool, check_choice, check_count, check_not_negative, check_positive, check_whole

Optimizer = Literal["adam", "adamw"]
LearningRate = Literal["constant", "one_cycle"]
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
    schedule: LearningRate = "constant"

    def __post_init__(self) -> None:
        """Validate the fields."""
        check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        check_positive("lr", self.lr)
        check_bool("mixed_precision", self.mixed_precision)
        for name in ("weight_decay", "colour_jitter"):
            check_not_negative(name, getattr(self, name))
        for name in ("crop_padding", "photo_side", "resized"):
            check_whole(name, getattr(self, name))
        check_choice("the optimizer", self.optimizer, get_args(Optimizer))
        check_choice("the schedule", self.schedule, get_args(LearningRate))

    def plain(self) -> dict[str, object]:
        """Return the fields as JSON values, without those added later where they have their defaults.

        Example:
            >>> "optimizer" in Recipe().plain(), Recipe(optimizer="adamw").plain()["optimizer"]
            (False, 'adamw')
        """
        unchanged = {f.name for f in fields(self) if f.name in _ADDED_LATER and getattr(self, f.name) == f.default}
        return {name: value for name, value in asdict(self).items() if name not in unchanged}


SVHN = Recipe(crop_padding=4)
CALIFORNIA = Recipe(lr=1e-3)
UTKFACE = Recipe(photo_side=224, mixed_precision=True)
BIWI = Recipe(photo_side=224, colour_jitter=0.3, mixed_precision=True)
VIT = Recipe(crop_padding=4, resized=224, mixed_precision=True)
