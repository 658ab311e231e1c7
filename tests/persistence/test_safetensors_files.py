import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from regtta.errors import (
    FileError,
    InvalidFileError,
    MissingFileError,
    UnsafePickleError,
)
from regtta.persistence.safetensors_files import load_weights, read_safetensors, write_safetensors


def test_tensors_of_any_layout_are_written(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    shared = {"a": base.T, "b": base, "c": base[0], "d": torch.nn.Parameter(base)}
    write_safetensors(tmp_path / "w", shared, {"note": "x"})
    tensors, metadata = read_safetensors(tmp_path / "w")
    assert metadata == {"note": "x"}
    for name, value in shared.items():
        assert torch.equal(tensors[name], value.detach())


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "w"
    write_safetensors(path, {"a": torch.ones(1)})

    def full(*_args, **_kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr("regtta.persistence.safetensors_files.save_file", full)
    with pytest.raises(FileError, match=r"Could not write .*No space left"):
        write_safetensors(path, {"a": torch.zeros(1)})
    assert load_file(path)["a"].item() == 1
    assert list(tmp_path.iterdir()) == [path]

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("regtta.persistence.safetensors_files.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_safetensors(path, {"a": torch.zeros(1)})
    assert list(tmp_path.iterdir()) == [path]


def test_an_invalid_header_raises(tmp_path):
    path = tmp_path / "w.safetensors"
    for header in (b'{"a": 1}', b'{"a": {"data_offsets": "xy"}}', b"{not json", b"{}[]"):
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(InvalidFileError):
            read_safetensors(path)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
def test_weights_from_nested_torch_save_files(tmp_path, wrap):
    state = torch.nn.Linear(2, 1).state_dict()
    torch.save(wrap(state), tmp_path / "w.pt")
    loaded = load_weights(tmp_path / "w.pt")
    assert loaded.keys() == state.keys()
    assert torch.equal(loaded["weight"], state["weight"])


def test_weights_from_safetensors(tmp_path):
    save_file({"weight": torch.ones(2)}, tmp_path / "w.safetensors")
    assert torch.equal(load_weights(tmp_path / "w.safetensors")["weight"], torch.ones(2))


class Boom:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_never_executed(tmp_path):
    path = tmp_path / "w.pt"
    torch.save(Boom(), path)
    with pytest.raises(UnsafePickleError, match="never"):
        load_weights(path)
    path.write_bytes(pickle.dumps(Boom()))
    with pytest.raises(UnsafePickleError, match="never"):
        load_weights(path)
    with pytest.raises(UnsafePickleError):
        read_safetensors(path)


def test_files_without_weights_raise(tmp_path):
    with pytest.raises(MissingFileError):
        load_weights(tmp_path / "absent.pt")
    torch.save([1, 2], tmp_path / "w.pt")
    with pytest.raises(InvalidFileError, match="holds no state dict"):
        load_weights(tmp_path / "w.pt")
