import os
from pathlib import Path

import pytest

from regtta.cli.outputs import check_output_files, check_output_folder, check_suffix
from regtta.errors import ExistingFileError, FileError, MissingFileError, OptionError
from regtta.persistence import atomic_write


def check(inputs: tuple[Path | None, ...] = (), force: bool = False, **outputs: Path | None) -> None:
    check_output_files({f"--{name}": path for name, path in outputs.items()}, inputs=inputs, force=force)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_new_files_pass_and_existing_ones_need_force(tmp_path: Path):
    check(out=tmp_path / "new", other=None)
    (tmp_path / "old").write_text("mine")
    with pytest.raises(ExistingFileError, match="old exists. Choose another path, or pass --force"):
        check(out=tmp_path / "old")
    check(out=tmp_path / "old", force=True)


def test_inputs_are_never_written_to_even_with_force(tmp_path: Path, monkeypatch):
    (tmp_path / "data.csv").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="--out data.csv is also an input"):
        check(out=Path("data.csv"), inputs=(None, tmp_path / "data.csv"), force=True)


def test_two_outputs_cannot_share_a_file(tmp_path: Path):
    with pytest.raises(OptionError, match="--b and --a both name"):
        check(a=tmp_path / "x", b=tmp_path / "." / "x")


def test_a_folder_is_not_a_file(tmp_path: Path):
    with pytest.raises(OptionError, match="is a folder. Name a file"):
        check(out=tmp_path, force=True)
    with pytest.raises(MissingFileError, match="no folder .*nowhere"):
        check(out=tmp_path / "nowhere" / "x")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(FileError, match="cannot be written to"):
        check(out=tmp_path / "x")


def test_suffixes():
    check_suffix("--out", Path("a.csv"), (".csv", ".parquet"))
    check_suffix("--out", None, (".csv",))
    with pytest.raises(OptionError, match="--out to end in .csv or .parquet, found a.txt"):
        check_suffix("--out", Path("a.txt"), (".csv", ".parquet"))


def test_folders_must_be_new_or_empty(tmp_path: Path):
    check_output_folder(tmp_path / "new", force=False)
    check_output_folder(tmp_path, force=False)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ExistingFileError, match="not empty. Choose another folder, or pass --force"):
        check_output_folder(tmp_path, force=False)
    check_output_folder(tmp_path, force=True)
    with pytest.raises(OptionError, match="is a file"):
        check_output_folder(tmp_path / "file", force=True)


def test_a_file_appears_when_complete(tmp_path: Path):
    path = tmp_path / "out"
    path.write_text("old")
    with atomic_write(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names_in(tmp_path) == ["out"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "out"
    path.write_text("old")

    def interrupted() -> None:
        with atomic_write(path) as draft:
            draft.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["out"]


def test_errors_of_the_file_system_are_reported(tmp_path: Path):
    with pytest.raises(FileError, match="Could not write"), atomic_write(tmp_path / "no" / "out"):
        pass
    with pytest.raises(FileError, match="Could not write .*disk full"), atomic_write(tmp_path / "out"):
        raise OSError("disk full")
    assert names_in(tmp_path) == []
