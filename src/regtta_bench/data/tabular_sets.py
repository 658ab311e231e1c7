"""Real tables with a distribution shift, read from the user's own copies: bicycles, wine, air quality and turbofans.

Expected in the folder of the data sets, each as it is published, optionally compressed by gzip (``.gz``):

* ``bike_sharing/hour.csv``: UCI bike sharing;
* ``wine_quality/winequality-{red,white}.csv``: UCI wine quality, separated by semicolons or by commas;
* ``beijing_air/PRSA_Data_{Dongsi,Huairou}_20130301-20170228.csv``: UCI Beijing multi-site air quality;
* ``cmapss/train_FD001.txt``, ``test_FD003.txt`` and ``RUL_FD003.txt``: NASA C-MAPSS.

Values are in the units of the files, in float64.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch

from regtta.errors import InvalidFileError
from regtta.options import check_choice
from regtta.persistence import convert_errors
from regtta_bench.data.archives import read_maybe_gzipped
from regtta_bench.data.catalogue import find_file
from regtta_bench.data.domains import Domain

if TYPE_CHECKING:
    import pandas as pd

BIKE_INPUTS = (
    "season", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum", "windspeed",
)  # fmt: skip
AIR_INPUTS = ("hour", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
MAX_LIFE = 125  # cycles; remaining life of a turbofan is usually capped there
WINTER, SUMMER = (11, 12, 1, 2, 3), (5, 6, 7, 8, 9)
_CMAPSS_COLUMNS = 2  # engine and cycle, before the inputs
_MAX_BYTES = 64 * 2**20  # the largest file, a table of C-MAPSS, has 3.5 MB

_BIKE = "bike_sharing/hour.csv"
_WINE = MappingProxyType({colour: f"wine_quality/winequality-{colour}.csv" for colour in ("red", "white")})
_AIR = MappingProxyType({site: f"beijing_air/PRSA_Data_{site}_20130301-20170228.csv" for site in ("Dongsi", "Huairou")})
_CMAPSS_TRAIN, _CMAPSS_TEST, _CMAPSS_LIFE = (
    f"cmapss/{name}.txt" for name in ("train_FD001", "test_FD003", "RUL_FD003")
)
# Files of each data set, all of which are required.
TABLE_FILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bike": (_BIKE,),
        "wine": tuple(_WINE.values()),
        "pm25": tuple(_AIR.values()),
        "cmapss": (_CMAPSS_TRAIN, _CMAPSS_TEST, _CMAPSS_LIFE),
    }
)


def find_table(folder: Path, data: str, path: str) -> Path:
    """Return the file ``path`` of the data set ``data`` in ``folder``, plain or compressed; raise if there is none."""
    return find_file(folder, data, (path, f"{path}.gz"))


def bike(folder: Path, year: int, *, window: int = 0) -> Domain:
    """Read the hours of 2011 (``year=0``) or 2012 (``year=1``); the label is log(1 + rentals).

    Args:
        folder: folder of the data sets.
        year: 0 or 1, as in the column ``yr``.
        window: length in rows of the series ``(N, window, D)`` that end at each row; 0 gives the rows ``(N, D)``.
    """
    path = find_table(folder, "bike", _BIKE)
    table = _read_csv(path, ("yr", "cnt", *BIKE_INPUTS))
    table = _not_empty(table[table["yr"] == year], path, f"yr {year}")
    return _rows_or_windows(table[list(BIKE_INPUTS)], np.log1p(table["cnt"].to_numpy()), window)


def wine(folder: Path, colour: str) -> Domain:
    """Read the wines of one colour, ``"red"`` or ``"white"``; the label is their quality."""
    check_choice("the colour", colour, _WINE)
    path = find_table(folder, "wine", _WINE[colour])
    table = _not_empty(_read_csv(path, ("quality",)).dropna(), path, "a quality")
    return _domain(table.drop(columns="quality").to_numpy(), table["quality"].to_numpy())


def air(folder: Path, site: str, months: tuple[int, ...] = (), *, window: int = 0) -> Domain:
    """Read the hours of one site, in certain months if given; the label is log PM2.5.

    Rows with gaps are dropped. A window of hours is taken only where no hour is missing.

    Args:
        folder: folder of the data sets.
        site: ``"Dongsi"``, a site in the city, or ``"Huairou"``, one in the country.
        months: months from 1 to 12; empty for all.
        window: length in hours of the series ``(N, window, D)`` that end at each row; 0 gives the rows ``(N, D)``.
    """
    check_choice("the site", site, _AIR)
    path = find_table(folder, "pm25", _AIR[site])
    table = _read_csv(path, ("No", "month", "PM2.5", *AIR_INPUTS))
    kept = table.loc[:, ["No", "month", "PM2.5", *AIR_INPUTS]].dropna()
    if months:
        kept = kept[kept["month"].isin(months)]
    kept = _not_empty(kept, path, f"month in {list(months)}" if months else "PM2.5")
    labels = np.log(kept["PM2.5"].to_numpy())
    return _rows_or_windows(kept[list(AIR_INPUTS)], labels, window, hours=kept["No"].to_numpy())


def turbofans(folder: Path, *, train: bool) -> Domain:
    """Read the cycles of C-MAPSS FD001 (train) or FD003 (test); the label is the remaining life, at most 125 cycles."""
    path = find_table(folder, "cmapss", _CMAPSS_TRAIN if train else _CMAPSS_TEST)
    cycles = _read_numbers(path, columns=_CMAPSS_COLUMNS + 1)
    engine, cycle = cycles[:, 0].astype(int), cycles[:, 1]
    last = np.array([cycle[engine == number].max(initial=0) for number in range(1, engine.max() + 1)])
    after = np.zeros(len(last))
    if not train:
        after = _read_numbers(find_table(folder, "cmapss", _CMAPSS_LIFE), columns=1)[:, 0]
    if len(after) != len(last):
        raise InvalidFileError(
            f"Expected the remaining life of each of the {len(last)} engines in {path}, found {len(after)} in "
            f"{_CMAPSS_LIFE}. Download both again."
        )
    life = (last + after)[engine - 1] - cycle
    return _domain(cycles[:, _CMAPSS_COLUMNS:], np.minimum(life, MAX_LIFE))


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


def _read_csv(path: Path, columns: Sequence[str]) -> "pd.DataFrame":
    """Read a table that has ``columns``, all of them numbers."""
    import pandas as pd

    raw = read_maybe_gzipped(path, _MAX_BYTES)
    separator = ";" if b";" in raw.partition(b"\n")[0] else ","
    with convert_errors(
        lambda why: InvalidFileError(f"{path} cannot be read as a CSV table: {why}. Download it again.")
    ):
        table = pd.read_csv(io.BytesIO(raw), sep=separator, encoding="utf-8-sig")
    missing = [name for name in columns if name not in table]
    texts = [name for name in columns if name in table and not pd.api.types.is_numeric_dtype(table[name])]
    if missing or texts:
        found = f"no column {missing}" if missing else f"text in {texts}"
        raise InvalidFileError(
            f"Expected the columns {list(columns)} of numbers in {path}, found {found}. Download it again."
        )
    return table


def _not_empty(table: "pd.DataFrame", path: Path, wanted: str) -> "pd.DataFrame":
    if table.empty:
        raise InvalidFileError(f"Expected rows with {wanted} in {path}, found none. Download it again.")
    return table


def _read_numbers(path: Path, *, columns: int) -> np.ndarray:
    """Read a table of numbers without header, which has at least ``columns`` columns."""
    raw = read_maybe_gzipped(path, _MAX_BYTES)
    with convert_errors(
        lambda why: InvalidFileError(f"{path} cannot be read as a table of numbers: {why}. Download it again.")
    ):
        values: np.ndarray = np.loadtxt(io.BytesIO(raw), ndmin=2)
    if values.shape[0] == 0 or values.shape[1] < columns:
        raise InvalidFileError(
            f"Expected rows of at least {columns} numbers in {path}, found a table of shape {values.shape}. Download "
            "it again."
        )
    return values
