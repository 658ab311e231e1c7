from pathlib import Path

import pytest
import torch

from regtta.cli.data.open_data import DataOptions, open_data, shuffle
from regtta.errors import BatchError


def test_every_row_occurs_once_with_its_label(workspace: Path):
    data = open_data(DataOptions("target.csv", target="y"), batch_size=16)
    plain = list(data.batches())
    inputs, targets = (torch.cat([getattr(b, name) for b in plain]) for name in ("inputs", "targets"))
    shuffled = shuffle(data, seed=3, batch_size=16)
    visited = list(shuffled.batches())
    assert [len(b.inputs) for b in visited] == [16, 16, 16, 16, 6]
    assert sorted(shuffled.order.tolist()) == list(range(70))
    assert torch.equal(torch.cat([b.inputs for b in visited]), inputs[shuffled.order])
    assert torch.equal(torch.cat([b.targets for b in visited]), targets[shuffled.order])


def test_the_seed_determines_the_order(workspace: Path):
    data = open_data(DataOptions("target.csv"), batch_size=16)
    orders = [shuffle(data, seed, 16).order for seed in (1, 1, 2)]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    assert not torch.equal(orders[0], torch.arange(70))


def test_shuffling_without_rows_is_rejected(workspace: Path):
    (workspace / "empty.csv").write_text("a,b,c\n")
    with pytest.raises(BatchError, match="no rows"):
        shuffle(open_data(DataOptions("empty.csv"), batch_size=4), 0, 4)
