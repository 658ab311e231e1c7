"""Shards of the processes: together they cover all batches, each once."""

import itertools
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from regtta.cli.data.labelled_batches import BatchShard
from regtta.cli.data.loaders import Loader
from regtta.cli.data.open_data import DataOptions, open_data, shuffle
from regtta.errors import ModelError


def sharded_and_whole(data, size: int):
    """Return all batches, and the batches of the shards of ``size`` processes, interleaved."""
    shares = [list(data.batches(BatchShard(rank, size))) for rank in range(size)]
    turns = [batch for turn in itertools.zip_longest(*shares) for batch in turn if batch is not None]
    return turns, list(data.batches())


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert (one.targets is None) == (other.targets is None)
        assert one.targets is None or torch.equal(one.targets, other.targets)


@pytest.mark.parametrize("size", [1, 2, 3, 9])  # 70 rows are 5 batches of 16
@pytest.mark.parametrize("name", ["target.csv", "target.csv.gz", "target.parquet", "target.npz"])
def test_shards_of_files_cover_all_batches(workspace: Path, name: str, size: int):
    assert_same(*sharded_and_whole(open_data(DataOptions(name, target="y"), batch_size=16), size))


def test_shards_of_shuffled_rows_cover_all_batches(workspace: Path):
    assert_same(*sharded_and_whole(shuffle(open_data(DataOptions("target.csv"), batch_size=16), 3, 8), 4))


@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("name", ["batches", "generator"])
def test_shards_of_loaders_cover_all_batches(workspace: Path, name: str, size: int):
    assert_same(*sharded_and_whole(open_data(DataOptions(f"mymodel:{name}", target="1"), batch_size=16), size))


class Squares(Dataset[torch.Tensor]):
    """Data set that records the requested items."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> torch.Tensor:
        self.made.append(index)
        return torch.tensor([float(index) ** 2])


def test_a_data_loader_loads_only_its_shard():
    squares = Squares()
    found = list(Loader("squares", DataLoader(squares, batch_size=4)).batches(BatchShard(1, 3)))
    assert [batch.inputs.flatten().tolist() for batch in found] == [[16, 25, 36, 49], [256, 289, 324, 361]]
    assert squares.made == [4, 5, 6, 7, 16, 17, 18, 19]


def test_shards_of_a_shuffling_loader_share_its_order_for_equal_seeds():
    seen = []
    for rank in range(3):
        torch.manual_seed(5)
        loader = Loader("squares", DataLoader(Squares(), batch_size=4, shuffle=True))
        seen += [number for batch in loader.batches(BatchShard(rank, 3)) for number in batch.inputs.flatten().tolist()]
    assert sorted(seen) == [index**2 for index in range(22)]
    assert seen != sorted(seen)


class _Twice(DataLoader[torch.Tensor]):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch * 2


def test_a_subclass_of_data_loader_is_iterated_as_it_is():
    found = list(Loader("twice", _Twice(Squares(), batch_size=4)).batches(BatchShard(1, 3)))
    assert found[0].inputs.flatten().tolist() == [32, 50, 72, 98]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failing_loader_names_its_own_batch_number_in_every_process(workspace: Path, rank: int):
    with pytest.raises(ModelError, match="breaks_off raised at its batch 1: OSError: the disk is gone"):
        list(open_data(DataOptions("mymodel:breaks_off"), batch_size=16).batches(BatchShard(rank, 2)))
