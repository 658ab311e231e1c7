"""Image corruptions of Hendrycks & Dietterich (2019): thirteen corruptions, five severities, two sets of constants.

``DEVIATIONS`` lists the differences from the published images. Implemented here because the published package draws
from one global generator and needs libraries that are no longer maintained; here every image has a seed of its own.
"""

from regtta_bench.corruptions.apply import CORRUPTIONS, corrupt
from regtta_bench.corruptions.constants import CONSTANTS, DEVIATIONS, SEVERITIES

__all__ = ["CONSTANTS", "CORRUPTIONS", "DEVIATIONS", "SEVERITIES", "corrupt"]
