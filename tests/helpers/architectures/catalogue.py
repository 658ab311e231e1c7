"""All entries of the catalogue."""

from helpers.architectures.entry import Architecture
from helpers.architectures.language import LANGUAGE
from helpers.architectures.series import TIME_SERIES
from helpers.architectures.tabular import TABULAR
from helpers.architectures.vision import VISION

CATALOGUE: tuple[Architecture, ...] = (*VISION, *LANGUAGE, *TIME_SERIES, *TABULAR)
