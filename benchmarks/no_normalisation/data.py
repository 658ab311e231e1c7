"""Real tables and hourly series with a distribution shift, read from the user's own copies.

Expected in the folder of the data sets, each as it is published, optionally compressed by gzip (``.gz``):

* ``bike_sharing/hour.csv``: UCI bike sharing;
* ``wine_quality/winequality-{red,white}.csv``: UCI wine quality, separated by commas;
* ``beijing_air/PRSA_Data_{Dongsi,Huairou}_20130301-20170228.csv``: UCI Beijing multi-site air quality;
* ``cmapss/train_FD001.txt``, ``test_FD003.txt`` and ``RUL_FD003.txt``: NASA C-MAPSS.

Values are in the units of the files; :mod:`benchmarks.no_normalisation.shifts` scales them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from regtta.errors import FileError
from regtta_bench.data import Domain

if TYPE_CHECKING:
    import pandas as pd

BIKE_INPUTS = (
    "season", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum", "windspeed",
)  # fmt: skip
AIR_INPUTS = ("hour", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
MAX_LIFE = 125  # cycles; remaining life of a turbofan is usually capped there
WINTER, SUMMER = (11, 12, 1, 2, 3), (5, 6, 7, 8, 9)


def bike(folder: Path, year: int, *, window: int = 0) -> Domain:
    """Read the hours of 2011 (``year=0``) or 2012 (``year=1``); the label is log(1 + rentals).

    Args:
        folder: folder of the data sets.
        year: 0 or 1, as in the column ``yr``.
        window: length in rows of the series ``(N, window, D)`` that end at each row; 0 gives the rows ``(N, D)``.
    """
    table = _read_csv(folder / "bike_sharing" / "hour.csv")
    table = table[table["yr"] == year]
    return _rows_or_windows(table[list(BIKE_INPUTS)], np.log1p(table["cnt"].to_numpy()), window)


def wine(folder: Path, colour: str) -> Domain:
    """Read the wines of one colour, ``"red"`` or ``"white"``; the label is their quality."""
    table = _read_csv(folder / "wine_quality" / f"winequality-{colour}.csv")
    return _domain(table.drop(columns="quality").to_numpy(), table["quality"].to_numpy())


def air(folder: Path, site: str, months: tuple[int, ...] = (), *, window: int = 0) -> Domain:
    """Read the hours of one site, in certain months if given; the label is log PM2.5.

    Rows with gaps are dropped. A window of hours is taken only where no hour is missing.
    """
    table = _read_csv(folder / "beijing_air" / f"PRSA_Data_{site}_20130301-20170228.csv")
    kept = table.loc[:, ["No", "month", "PM2.5", *AIR_INPUTS]].dropna()
    if months:
        kept = kept[kept["month"].isin(months)]
    labels = np.log(kept["PM2.5"].to_numpy())
    return _rows_or_windows(kept[list(AIR_INPUTS)], labels, window, hours=kept["No"].to_numpy())


def turbofans(folder: Path, *, train: bool) -> Domain:
    """Read the cycles of C-MAPSS FD001 (train) or FD003 (test); the label is the remaining life, at most 125 cycles."""
    cycles = _read_numbers(folder / "cmapss" / ("train_FD001.txt" if train else "test_FD003.txt"))
    engine, cycle = cycles[:, 0].astype(int), cycles[:, 1]
    last = np.array([cycle[engine == number].max() for number in range(1, engine.max() + 1)])
    after = np.zeros(len(last)) if train else _read_numbers(folder / "cmapss" / "RUL_FD003.txt")[:, 0]
    life = (last + after)[engine - 1] - cycle
    return _domain(cycles[:, 2:], np.minimum(life, MAX_LIFE))


def _rows_or_windows(
    inputs: "pd.DataFrame", labels: np.ndarray, window: int, hours: np.ndarray | None = None
) -> Domain:
    values = inputs.to_numpy(dtype=np.float64)
    if not window:
        return _domain(values, labels)
    hours = np.arange(len(values)) if hours is None else hours
    last = np.arange(window - 1, len(values))
    last = last[hours[last] - hours[last - window + 1] == window - 1]
    series = np.stack([values[last - back] for back in reversed(range(window))], axis=1)
    return _domain(series, labels[last])


def _domain(inputs: np.ndarray, labels: np.ndarray) -> Domain:
    return Domain(torch.tensor(inputs, dtype=torch.float64), torch.tensor(labels, dtype=torch.float64).unsqueeze(1))


def _read_csv(path: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_csv(_existing(path), encoding="utf-8-sig")


def _read_numbers(path: Path) -> np.ndarray:
    return np.loadtxt(_existing(path), ndmin=2)


def _existing(path: Path) -> Path:
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.exists():
            return candidate
    raise FileError(f"Expected the data file {path}, or the same with .gz, found neither. Pass its folder as --data.")
