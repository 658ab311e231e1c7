"""Domains of the tables by name, standardised by the source: a year, a colour, a site, a season, a fleet of engines."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from regtta.options import check_choice
from regtta_bench.data.domains import Domain, split_domain
from regtta_bench.data.sensor_faults import SENSOR_FAULTS
from regtta_bench.data.tabular_sets import SUMMER, WINTER, air, bike, turbofans, wine

HELD_OUT_SHARE = 1 / 3

Reader = Callable[[Path], Domain]

# Readers of the domains by data set and name.
TABLE_DOMAINS: Mapping[str, Mapping[str, Reader]] = MappingProxyType(
    {
        "bike": MappingProxyType({"2011": partial(bike, year=0), "2012": partial(bike, year=1)}),
        "wine": MappingProxyType({"white": partial(wine, colour="white"), "red": partial(wine, colour="red")}),
        "pm25": MappingProxyType(
            {
                "dongsi": partial(air, site="Dongsi"),
                "huairou": partial(air, site="Huairou"),
                "winter": partial(air, site="Dongsi", months=WINTER),
                "summer": partial(air, site="Dongsi", months=SUMMER),
            }
        ),
        "cmapss": MappingProxyType({"fd001": partial(turbofans, train=True), "fd003": partial(turbofans, train=False)}),
    }
)


class TableShifts:
    """A source domain of a table with all of its target domains, standardised by its training rows.

    Two thirds of the source train the model. The last third is held out: it is the validation set and, with faulty
    sensors, the target. Other domains of the table are targets as a whole.

    Args:
        folder: folder of the data sets.
        data: name of the table, one of ``TABLE_DOMAINS``.
        source: name of the source domain.
        seed: seed of the split.

    Attributes:
        train: standardised training rows, inputs ``(N, D)`` and labels ``(N, 1)``.
        validation: standardised held-out rows.
    """

    def __init__(self, folder: Path, data: str, source: str, *, seed: int) -> None:
        self._folder, self._domains = folder, TABLE_DOMAINS[data]
        check_choice("the source", source, self._domains)
        self._rows, self._held_out = split_domain(self._domains[source](folder), HELD_OUT_SHARE, seed)
        self.train, self.validation = (_standardised_domain(part, self._rows) for part in (self._rows, self._held_out))

    def target(self, name: str) -> Domain:
        """Return the target called ``name``: another domain of the table, or a fault in ``SENSOR_FAULTS``."""
        if name in SENSOR_FAULTS:
            held_out, train = (_standardised(part.inputs, self._rows.inputs) for part in (self._held_out, self._rows))
            return Domain(SENSOR_FAULTS[name].apply(held_out, train).float(), self.validation.targets)
        check_choice("the target", name, (*self._domains, *SENSOR_FAULTS))
        return _standardised_domain(self._domains[name](self._folder), self._rows)


def _standardised_domain(part: Domain, rows: Domain) -> Domain:
    return Domain(_standardised(part.inputs, rows.inputs).float(), _standardised(part.targets, rows.targets).float())


def _standardised(values: Tensor, rows: Tensor) -> Tensor:
    """Return ``(values − mean) / sd`` with the moments of ``rows``; a column that is constant there is only centred."""
    spread = torch.where(rows.amax(dim=0) > rows.amin(dim=0), rows.std(dim=0, correction=0), 1.0)
    return (values - rows.mean(dim=0)) / spread
