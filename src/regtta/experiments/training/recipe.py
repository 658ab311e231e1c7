"""How source models are trained, as in the paper's appendix. An incomplete last batch of an epoch is left out."""

from dataclasses import dataclass

from regtta.options import check_count, check_not_negative, check_positive


@dataclass(frozen=True)
class Recipe:
    """One way of training.

    Args:
        epochs: passes over the source.
        batch_size: samples a step.
        lr: Adam's learning rate.
        weight_decay: Adam's.
        crop_padding: images are cropped back to their size out of this many pixels of padding; 0 for none.
    """

    epochs: int = 100
    batch_size: int = 64
    lr: float = 1e-4
    weight_decay: float = 5e-4
    crop_padding: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        check_positive("lr", self.lr)
        check_not_negative("weight_decay", self.weight_decay)
        check_not_negative("crop_padding", self.crop_padding)


SVHN = Recipe(crop_padding=4)
CALIFORNIA = Recipe(lr=1e-3)
