"""Images made worse in known ways: thirteen corruptions at five severities, in two sets of constants.

After Hendrycks & Dietterich (2019); see ``DEVIATIONS`` for what differs from the published images.
"""

from regtta.experiments.corruptions.api import CORRUPTIONS, corrupt
from regtta.experiments.corruptions.constants import CONSTANTS, SEVERITIES
from regtta.experiments.corruptions.deviations import DEVIATIONS

__all__ = ["CONSTANTS", "CORRUPTIONS", "DEVIATIONS", "SEVERITIES", "corrupt"]
