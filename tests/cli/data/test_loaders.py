from pathlib import Path

import pytest
import torch

from regtta.cli.data.open_data import DataOptions, open_data
from regtta.errors import BatchError, ModelError, OptionError


def opened(name: str, **options: object):
    return open_data(DataOptions(name, **options), batch_size=4)


@pytest.mark.parametrize("name", ["batches", "generator"])
def test_tuples_with_the_target_by_position(workspace: Path, name):
    import mymodel

    data = opened(f"mymodel:{name}", target="1")
    for _ in range(2):  # a generator function is called anew each pass
        found = list(data.batches())
        assert torch.equal(torch.cat([b.inputs for b in found]), mymodel.table)
        assert torch.equal(torch.cat([b.targets for b in found]), mymodel.labels)
    assert data.reiterable
    assert data.target_names == ("target",)


def test_dicts_by_key(workspace: Path):
    import mymodel

    data = opened("mymodel:dicts", inputs="image", target="age")
    found = list(data.batches())
    assert torch.equal(torch.cat([b.inputs for b in found]), mymodel.table)
    assert torch.equal(torch.cat([b.targets for b in found]), mymodel.labels)
    assert data.target_names == ("age",)


def test_bare_tensors_and_no_target(workspace: Path):
    found = list(opened("mymodel:bare").batches())
    assert len(found) == 5
    assert all(batch.targets is None for batch in found)


def test_an_iterator_is_not_reiterable(workspace: Path):
    assert not opened("mymodel:once").reiterable


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("batches", "2", "the batch is a tuple of 2"),
        ("batches", "age", "the batch is a tuple of 2"),
        ("dicts", "aeg", r"a dict with the keys \['image', 'age'\]"),
        ("bare", "1", "the batch is a Tensor"),
    ],
)
def test_a_missing_target_is_reported(workspace: Path, name, target, words):
    inputs = "image" if name == "dicts" else None
    with pytest.raises(BatchError, match=f"labels at --target {target}, found none: .*{words}"):
        list(opened(f"mymodel:{name}", target=target, inputs=inputs).batches())


def test_a_failing_loader_names_the_batch(workspace: Path):
    with pytest.raises(ModelError, match=r"raised at its batch 1: OSError: the disk is gone \(mymodel.py"):
        list(opened("mymodel:breaks_off").batches())


def test_a_failing_function_is_reported(workspace: Path):
    with pytest.raises(ModelError, match="--data mymodel:fails raised: ValueError.*without arguments"):
        list(opened("mymodel:fails").batches())


@pytest.mark.parametrize(
    ("name", "words"),
    [("number", "iterable of batches.*found int.*DataLoader"), ("table", "is a single tensor. Pass batches")],
)
def test_objects_that_are_not_loaders_are_rejected(workspace: Path, name, words):
    with pytest.raises(OptionError, match=words):
        list(opened(f"mymodel:{name}").batches())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ("a",)}, "--columns does not apply to a loader"),
        ({"batch_size": 3}, "--batch-size does not apply to a loader"),
    ],
)
def test_options_of_files_are_rejected(workspace: Path, options, words):
    with pytest.raises(OptionError, match=words):
        opened("mymodel:batches", **options)
