"""Image corruptions of Hendrycks & Dietterich (2019): thirteen corruptions, five severities, two sets of constants.

``DEVIATIONS`` lists the differences from the published images.
"""

from regtta.experiments.corruptions.api import CORRUPTIONS, corrupt
from regtta.experiments.corruptions.constants import CONSTANTS, SEVERITIES
from regtta.experiments.corruptions.deviations import DEVIATIONS

__all__ = ["CONSTANTS", "CORRUPTIONS", "DEVIATIONS", "SEVERITIES", "corrupt"]
