import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from regtta.errors import (
    ExistingFileError,
    FileError,
    ForeignFileError,
    MissingFileError,
    PickleRefusedError,
)
from regtta.persistence.safetensors_files import load_weights, read_safetensors, refuse_existing, write_safetensors


def test_refuse_existing(tmp_path):
    assert refuse_existing(tmp_path / "new", overwrite=False) == tmp_path / "new"
    (tmp_path / "old").write_text("mine")
    assert refuse_existing(tmp_path / "old", overwrite=True) == tmp_path / "old"
    with pytest.raises(ExistingFileError, match="pass --force"):
        refuse_existing(tmp_path / "old", overwrite=False, remedy="--force")
    with pytest.raises(MissingFileError, match="no folder"):
        refuse_existing(tmp_path / "absent" / "new", overwrite=False)


def test_writing_takes_any_layout_of_tensors(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    shared = {"a": base.T, "b": base, "c": base[0], "d": torch.nn.Parameter(base)}
    write_safetensors(tmp_path / "w", shared, {"note": "x"})
    tensors, metadata = read_safetensors(tmp_path / "w")
    assert metadata == {"note": "x"}
    for name, value in shared.items():
        assert torch.equal(tensors[name], value.detach())


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
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


def test_a_header_of_nonsense_is_foreign(tmp_path):
    path = tmp_path / "w.safetensors"
    for header in (b'{"a": 1}', b'{"a": {"data_offsets": "xy"}}', b"{not json", b"{}[]"):
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(ForeignFileError):
            read_safetensors(path)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
def test_weights_from_torch_save_however_nested(tmp_path, wrap):
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


def test_a_pickle_is_never_run(tmp_path):
    path = tmp_path / "w.pt"
    torch.save(Boom(), path)
    with pytest.raises(PickleRefusedError, match="never"):
        load_weights(path)
    path.write_bytes(pickle.dumps(Boom()))
    with pytest.raises(PickleRefusedError, match="never"):
        load_weights(path)
    with pytest.raises(PickleRefusedError):
        read_safetensors(path)


def test_weights_that_are_none(tmp_path):
    with pytest.raises(MissingFileError):
        load_weights(tmp_path / "absent.pt")
    torch.save([1, 2], tmp_path / "w.pt")
    with pytest.raises(ForeignFileError, match="holds no state dict"):
        load_weights(tmp_path / "w.pt")
