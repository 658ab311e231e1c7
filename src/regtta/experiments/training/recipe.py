"""How source models are trained, as in the paper's appendix. An incomplete last batch of an epoch is left out."""

from dataclasses import dataclass

from regtta.options import check_bool, check_count, check_not_negative, check_positive, check_whole


@dataclass(frozen=True)
class Recipe:
    """One way of training, and of showing inputs to the model.

    Args:
        epochs: passes over the source.
        batch_size: samples a step.
        lr: Adam's learning rate.
        weight_decay: Adam's.
        crop_padding: images are cropped back to their size out of this many pixels of padding; 0 for none.
        photo_side: photographs (bytes) are cropped to this side, at random and mirrored in training, and normalised;
            0 for inputs that are none.
        colour_jitter: by how much colours of photographs vary in training; 0 for not at all.
        resized: images are brought to this side before the model sees them; 0 to leave them.
        mixed_precision: on a GPU, train in bfloat16 where that is safe.
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

    def __post_init__(self) -> None:
        """Validate fields."""
        check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        check_positive("lr", self.lr)
        check_bool("mixed_precision", self.mixed_precision)
        for name in ("weight_decay", "colour_jitter"):
            check_not_negative(name, getattr(self, name))
        for name in ("crop_padding", "photo_side", "resized"):
            check_whole(name, getattr(self, name))


SVHN = Recipe(crop_padding=4)
CALIFORNIA = Recipe(lr=1e-3)
UTKFACE = Recipe(photo_side=224, mixed_precision=True)
BIWI = Recipe(photo_side=224, colour_jitter=0.3, mixed_precision=True)
VIT = Recipe(crop_padding=4, resized=224, mixed_precision=True)
