"""California Housing: house prices by area; the coast near the bay is the target.

Rows with missing values are dropped. The source is everything but ``ocean_proximity == "NEAR BAY"``. All nine
numeric columns, the label included, are standardised with the mean and the (biased) standard deviation of the
source.
"""

from pathlib import Path

import torch

from regtta.errors import ForeignFileError
from regtta.experiments.datasets.domains import Domain, Shift
from regtta.experiments.datasets.location import find_file

LABEL = "median_house_value"
AREA = "ocean_proximity"
TARGET_AREA = "NEAR BAY"
VALIDATION_SHARE = 0.1


def california(folder: Path, *, seed: int) -> Shift:
    """Source and target; ``seed`` draws which tenth of the source is held out."""
    import pandas as pd

    path = find_file(
        folder,
        ("california_housing/housing.csv.gz", "california_housing/housing.csv", "housing.csv"),
        what="California Housing",
        origin="Kaggle, camnugent/california-housing-prices (housing.csv)",
        terms="public domain",
    )
    table = pd.read_csv(path).dropna()
    if LABEL not in table or AREA not in table:
        raise ForeignFileError(f"Expected the columns {LABEL!r} and {AREA!r} in {path}, found {list(table)}.")
    near = (table.pop(AREA) == TARGET_AREA).to_numpy()
    source = table[~near]
    scaled = (table - source.mean()) / source.std(ddof=0)
    labels = torch.tensor(scaled.pop(LABEL).to_numpy(), dtype=torch.float32).unsqueeze(1)
    whole = Domain(torch.tensor(scaled.to_numpy(), dtype=torch.float32), labels)
    inside = torch.tensor(near)
    train, validation = held_out(whole.take(~inside), VALIDATION_SHARE, seed)
    return Shift("california", train, validation, whole.take(inside))


def held_out(domain: Domain, share: float, seed: int) -> tuple[Domain, Domain]:
    """``domain`` in two parts at random, the second with ``share`` of the samples."""
    order = torch.randperm(len(domain), generator=torch.Generator().manual_seed(seed))
    count = round(len(domain) * share)
    return domain.take(order[count:]), domain.take(order[:count])
