import os
import stat

import pytest

from regtta.errors import ExistingFileError, MissingFileError
from regtta.persistence.atomic_files import atomic_write, check_not_existing, temporary_path


def test_check_not_existing(tmp_path):
    assert check_not_existing(tmp_path / "new", overwrite=False) == tmp_path / "new"
    (tmp_path / "old").write_text("mine")
    assert check_not_existing(tmp_path / "old", overwrite=True) == tmp_path / "old"
    with pytest.raises(ExistingFileError, match="pass --force"):
        check_not_existing(tmp_path / "old", overwrite=False, remedy="--force")
    with pytest.raises(MissingFileError, match="no folder"):
        check_not_existing(tmp_path / "absent" / "new", overwrite=False)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_processes_may_write_the_same_file_concurrently(tmp_path):
    path, children = tmp_path / "s", []
    for letter in "abcd":
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(40):
                    with atomic_write(path) as temporary:
                        temporary.write_text(letter * 5000)
                    assert path.read_text() in [other * 5000 for other in "abcd"]
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert list(tmp_path.iterdir()) == [path]


def test_active_temporary_files_and_files_of_the_user_are_not_removed(tmp_path):
    path = tmp_path / "s"
    for name in (".s.settings", ".s.abcdefgh.draft.txt", ".s.b.abcdefgh.draft"):
        (tmp_path / name).mkdir()
    (tmp_path / ".s.00000000.draft").write_text("a file, not a folder")
    before = set(tmp_path.iterdir())
    with temporary_path(path) as temporary:
        temporary.write_text("half")
        with atomic_write(path) as other:
            other.write_text("whole")
        assert temporary.read_text() == "half"
    assert set(tmp_path.iterdir()) == before | {path}


def test_the_file_is_synced_before_it_is_moved(tmp_path, monkeypatch):
    done = []
    replace = type(tmp_path).replace

    def synced(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def replaced(self, target):
        done.append("move")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(type(tmp_path), "replace", replaced)
    with atomic_write(tmp_path / "s") as temporary:
        temporary.write_text("whole")
    assert done == ["file", "move", "folder"]
