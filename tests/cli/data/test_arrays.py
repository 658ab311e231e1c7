import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from regtta.cli.data.open_data import DataOptions, open_data
from regtta.errors import BatchError, FileError, OptionError


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def batches(path: Path, **options: object):
    return list(open_data(DataOptions(str(path), **options), batch_size=2).batches())


def test_arrays_of_any_shape_in_batches(tmp_path: Path):
    images = np.arange(5 * 12, dtype=np.uint8).reshape(5, 3, 2, 2)
    ages = np.arange(5)
    np.savez(tmp_path / "d.npz", x=images, y=ages)
    found = batches(tmp_path / "d.npz", target="y")
    assert [len(b.inputs) for b in found] == [2, 2, 1]
    assert found[0].inputs.dtype == torch.float32
    assert np.array_equal(torch.cat([b.inputs for b in found]).numpy(), images)
    assert torch.cat([b.targets for b in found]).tolist() == ages.tolist()


def test_another_array_by_name(tmp_path: Path):
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 1)), features=np.ones((2, 1)))
    assert batches(tmp_path / "d.npz", inputs="features")[0].inputs.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": "xs"}, r"no array 'xs'; it has \['x', 'y'\]. Pass --inputs NAME. Did you mean 'x'"),
        ({"target": "age"}, r"no array 'age'; .*Pass --target NAME"),
        ({"columns": ("a",)}, "--columns does not apply to an .npz file. Name the array with --inputs"),
    ],
)
def test_wrong_options_are_rejected(tmp_path: Path, options, words):
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 1)), y=np.zeros(2))
    with pytest.raises(OptionError, match=words):
        batches(tmp_path / "d.npz", **options)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((3, 1)), "y": np.zeros(2)}, "3 samples but 2 labels in 'y'"),
        ({"x": np.array(["a", "b"]), "y": np.zeros(2)}, "'x' of .* is not numeric"),
        ({"x": np.float64(1), "y": np.zeros(2)}, r"shape \(N, ...\), found a single number"),
    ],
)
def test_arrays_that_do_not_fit_are_rejected(tmp_path: Path, arrays, words):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(BatchError, match=words):
        batches(tmp_path / "d.npz", target="y")


def test_pickles_are_never_run(tmp_path: Path):
    np.savez(tmp_path / "objects.npz", x=np.array([Trap()], dtype=object))
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Trap()))
    for name in ("objects.npz", "bare.npz"):
        with pytest.raises(FileError, match=r"as plain arrays.*numpy.savez"):
            batches(tmp_path / name)


def test_an_npy_file_named_npz_is_rejected(tmp_path: Path):
    with (tmp_path / "d.npz").open("wb") as file:
        np.save(file, np.zeros((2, 2)))
    with pytest.raises(FileError, match="as plain arrays"):
        batches(tmp_path / "d.npz")
