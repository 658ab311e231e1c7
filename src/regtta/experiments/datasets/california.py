"""California Housing: house prices by area; the coast near the bay is the target.

Rows with missing values are dropped. The source is everything but ``ocean_proximity == "NEAR BAY"``. All nine
numeric columns, the label included, are standardised with the mean and the (biased) standard deviation of the
source.
"""

import hashlib
import io
import logging
import warnings
from pathlib import Path

import torch

from regtta.errors import ExistingFileError, ForeignFileError
from regtta.experiments.datasets.catalogue import DATASETS
from regtta.experiments.datasets.domains import Domain, Shift, held_out
from regtta.experiments.datasets.fetching import Progress, fetch
from regtta.experiments.datasets.location import data_folder, find_file
from regtta.experiments.datasets.unpacking import unpacked
from regtta.reading import clear_errors

LABEL = "median_house_value"
AREA = "ocean_proximity"
TARGET_AREA = "NEAR BAY"
VALIDATION_SHARE = 0.1

CALIFORNIA_URL = "https://raw.githubusercontent.com/ageron/handson-ml/master/datasets/housing/housing.csv"
CALIFORNIA_SHA256 = "8a3727f4cf54ac1a327f69b1d5b4db54c5834ea81c6e4efc0d163300022a685e"  # of the unpacked CSV
_FETCHED = "california_housing/housing.csv"
_LIMIT = 16 * 2**20  # the table has 1.4 MB
_MOST_LINE = 10_000  # bytes; its longest line has some 100, in 10 columns

_logger = logging.getLogger(__name__)


def california(folder: Path, *, seed: int) -> Shift:
    """Source and target; ``seed`` draws which tenth of the source is held out."""
    import pandas as pd

    path = find_file(folder, "california")
    raw = unpacked(path, _LIMIT)
    if hashlib.sha256(raw).hexdigest() != CALIFORNIA_SHA256:
        _logger.warning("%s is not the California Housing table that published results were made with.", path)
    if max(map(len, raw.splitlines()), default=0) > _MOST_LINE:
        raise ForeignFileError(f"{path} has lines that are far too long for the table of California Housing.")
    with (
        clear_errors(lambda why: ForeignFileError(f"{path} cannot be read as a CSV table: {why}. Get it again.")),
        warnings.catch_warnings(action="error", category=pd.errors.ParserWarning),  # of lines longer than the first
    ):
        table = pd.read_csv(io.BytesIO(raw), index_col=False).dropna()
    if LABEL not in table or AREA not in table:
        raise ForeignFileError(f"Expected the columns {LABEL!r} and {AREA!r} in {path}, found {list(table)}.")
    near = (table.pop(AREA) == TARGET_AREA).to_numpy()
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    if texts or near.all() or not near.any():
        found = f"text in {texts}" if texts else f"{near.sum()} of {len(near)} rows with {AREA} {TARGET_AREA!r}"
        raise ForeignFileError(f"Expected numbers and rows of both domains in {path}, found {found}. Get it again.")
    source = table[~near]
    scaled = (table - source.mean()) / source.std(ddof=0)
    labels = torch.tensor(scaled.pop(LABEL).to_numpy(), dtype=torch.float32).unsqueeze(1)
    whole = Domain(torch.tensor(scaled.to_numpy(), dtype=torch.float32), labels)
    inside = torch.tensor(near)
    train, validation = held_out(whole.take(~inside), VALIDATION_SHARE, seed)
    return Shift("california", train, validation, whole.take(inside))


def fetch_california(folder: str | Path, *, url: str = CALIFORNIA_URL, progress: Progress | None = None) -> Path:
    """Fetch the table into ``folder`` from a public address, and say where it lies.

    Its checksum is verified before it is put in place. Nothing that is there already is written over.

    Args:
        folder: of the data sets.
        url: an https address of the unpacked CSV.
        progress: called with the bytes so far, and those in all where the server says so.
    """
    folder = data_folder(folder)
    for place in DATASETS["california"].places:
        if (folder / place).exists():
            raise ExistingFileError(f"{folder / place} exists. Use it as it is, or remove it first.")
    path = folder / _FETCHED
    path.parent.mkdir(exist_ok=True)
    return fetch(url, path, sha256=CALIFORNIA_SHA256, limit=_LIMIT, progress=progress)
