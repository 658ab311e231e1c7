"""The shifts of the study: pairs of source and target, real ones, drifted sensors and degraded images.

Inputs and labels are scaled to mean 0 and variance 1 on the training rows of the source. Columns that are constant
there are dropped. A drift multiplies every third column of held-out source data by 1.4 and adds 0.8 of its standard
deviations, in the units of the file: a wrong gain and a wrong offset of a sensor. Columns whose mean is large against
their standard deviation, as some of C-MAPSS, are then thousands of standard deviations away.

The degraded digits of scikit-learn and the wide MLPs were added after the runs of the other shifts, to check whether
their ranking holds in convolutional networks and wider layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from regtta_bench.data import Domain, ShiftedDataset
from regtta_bench.data import tabular_sets as data
from regtta_bench.data.domains import split_domain
from regtta_bench.demo.demo_data import Blur, Brighten, Contrast, Darken, Degradation, Noise, split_digits, uci_digits

HOURS = 12  # length of the series that a recurrent network reads
VALIDATION_SHARE, DRIFTED_SHARE = 0.2, 1 / 3
GAIN, OFFSET = 1.4, 0.8
SOURCE_DIGITS = 900
CNNS = ("cnn", "wide cnn")
DEGRADED: dict[str, Degradation] = {
    "darker": Darken(0.5),
    "brighter": Brighten(0.3),
    "blurred": Blur(1.5),
    "noisy": Noise(0.2),
    "less contrast": Contrast(0.5),
}
MAX_ROWS = 8000  # drawn at random, for recurrent and wide networks, which are slow on one core

Reader = Callable[[Path], Domain]


@dataclass(frozen=True)
class Shift:
    """A shift of the study.

    Attributes:
        name: name in the results.
        network: kind of source model: ``"mlp"``, ``"wide mlp"``, ``"lstm"``, ``"gru"``, or ``"cnn"`` and ``"wide cnn"``
            for digits.
        source: reader of the source; None for digits.
        target: reader of the target; None for a drifted third of the source.
        degradation: degradation of digits.
    """

    name: str
    network: str
    source: Reader | None = None
    target: Reader | None = None
    degradation: Degradation | None = None

    @property
    def key(self) -> str:
        """Name and network, which identify the shift in the results."""
        return f"{self.network}: {self.name}"


def shifts() -> tuple[Shift, ...]:
    """Return all shifts: of tables, hourly series and digits; some with two widths of the network."""
    city, country = partial(data.air, site="Dongsi"), partial(data.air, site="Huairou")
    winter, summer = partial(city, months=data.WINTER), partial(city, months=data.SUMMER)
    first, second = partial(data.bike, year=0), partial(data.bike, year=1)
    white, red = partial(data.wine, colour="white"), partial(data.wine, colour="red")
    fd001, fd003 = partial(data.turbofans, train=True), partial(data.turbofans, train=False)

    def series(reader: Callable[..., Domain]) -> Reader:
        return partial(reader, window=HOURS)

    return (
        Shift("bike, 2011 to 2012", "mlp", first, second),
        Shift("wine, white to red", "mlp", white, red),
        Shift("PM2.5, Dongsi to Huairou", "mlp", city, country),
        Shift("PM2.5, Nov–Mar to May–Sep", "mlp", winter, summer),
        Shift("C-MAPSS, FD001 to FD003", "mlp", fd001, fd003),
        Shift("bike, drifted", "mlp", first),
        Shift("PM2.5, drifted", "mlp", city),
        Shift("wine, drifted", "mlp", white),
        Shift("C-MAPSS, drifted", "mlp", fd001),
        Shift("bike, 2011 to 2012", "gru", series(first), series(second)),
        Shift("bike, drifted", "gru", series(first)),
        Shift("PM2.5, Dongsi to Huairou", "lstm", series(city), series(country)),
        Shift("PM2.5, Nov–Mar to May–Sep", "lstm", series(winter), series(summer)),
        Shift("PM2.5, drifted", "lstm", series(city)),
        Shift("bike, 2011 to 2012", "wide mlp", first, second),
        Shift("wine, white to red", "wide mlp", white, red),
        Shift("PM2.5, Nov–Mar to May–Sep", "wide mlp", winter, summer),
        Shift("C-MAPSS, FD001 to FD003", "wide mlp", fd001, fd003),
        Shift("bike, drifted", "wide mlp", first),
        *(Shift(f"digits, {name}", network, degradation=made) for network in CNNS for name, made in DEGRADED.items()),
    )


def make_dataset(shift: Shift, folder: Path, seed: int) -> ShiftedDataset:
    """Read, split and scale source and target; ``seed`` determines the split and the order of the target."""
    if shift.source is None:
        return _make_digits(shift, seed)
    source = _at_most(shift.source(folder), shift, seed)
    if shift.target is None:
        source, target = split_domain(source, DRIFTED_SHARE, seed)
        target = Domain(drifted(target.inputs, source.inputs), target.targets)
    else:
        target = _at_most(shift.target(folder), shift, seed)
    train, validation = split_domain(source, VALIDATION_SHARE, seed + 1000)
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    scaled = [_scaled(part, train) for part in (train, validation, target.take(order))]
    return ShiftedDataset(shift.key, *scaled)


def _make_digits(shift: Shift, seed: int) -> ShiftedDataset:
    parts = split_digits(uci_digits(), seed, source=SOURCE_DIGITS)
    train, validation = split_domain(parts.source, VALIDATION_SHARE, seed + 1000)
    images = parts.target.inputs
    if shift.degradation is not None:
        images = shift.degradation.apply(images, torch.Generator().manual_seed(seed))
    mean, spread = train.targets.mean(), train.targets.std(correction=0)
    scaled = [
        Domain(inputs, ((part.targets - mean) / spread).unsqueeze(1))
        for part, inputs in ((train, train.inputs), (validation, validation.inputs), (parts.target, images))
    ]
    return ShiftedDataset(shift.key, *scaled)


def drifted(inputs: Tensor, source: Tensor) -> Tensor:
    """Return ``inputs`` ``(N, ..., D)`` with every third column times 1.4 plus 0.8 standard deviations of ``source``.

    Example:
        >>> drifted(torch.ones(1, 4), torch.tensor([[0.0, 0, 0, 0], [2, 2, 2, 2]])).tolist()
        [[2.2, 1.0, 1.0, 2.2]]
    """
    columns = torch.arange(inputs.shape[-1]) % 3 == 0
    spread = source.flatten(0, -2).std(0, correction=0)
    return torch.where(columns, inputs * GAIN + OFFSET * spread, inputs)


def _at_most(domain: Domain, shift: Shift, seed: int) -> Domain:
    if shift.network == "mlp" or len(domain) <= MAX_ROWS:
        return domain
    order = torch.randperm(len(domain), generator=torch.Generator().manual_seed(seed))
    return domain.take(order[:MAX_ROWS])


def _scaled(part: Domain, train: Domain) -> Domain:
    """Return ``part`` in float32, scaled by the mean and the standard deviation of ``train``."""
    flat = train.inputs.flatten(0, -2)
    varies = flat.amax(0) > flat.amin(0)
    inputs = (part.inputs - flat.mean(0))[..., varies] / flat.std(0, correction=0)[varies]
    targets = (part.targets - train.targets.mean()) / train.targets.std(correction=0)
    return Domain(inputs.float(), targets.float())
