"""All entries of the catalogue."""

from helpers.architectures.entry import Architecture
from helpers.architectures.language import LANGUAGE
from helpers.architectures.series import TIME_SERIES
from helpers.architectures.tabular import TABULAR
from helpers.architectures.vision import VISION

CATALOGUE: tuple[Architecture, ...] = (*VISION, *LANGUAGE, *TIME_SERIES, *TABULAR)

# Models without a normalisation layer, whose whole extractor is trained.
WITHOUT_NORMALISATION = frozenset({"VGG", "squeezenet1_1", "test_nfnet", "LSTM without normalisation", "MLP"})


def trainable_of(entry: Architecture) -> str:
    """Return the parameters to train, as the methods' option ``trainable``."""
    return "extractor" if entry.name in WITHOUT_NORMALISATION else "affine"
