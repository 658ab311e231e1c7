import pytest

from regtta.errors import MissingFileError
from regtta_bench.data import data_folder


def test_the_folder_given_wins_over_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("REGTTA_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    (tmp_path / "other").mkdir()
    assert data_folder(tmp_path / "other") == tmp_path / "other"
    with pytest.raises(MissingFileError, match="There is no folder"):
        data_folder(tmp_path / "absent")
    monkeypatch.delenv("REGTTA_DATA")
    with pytest.raises(MissingFileError, match="set REGTTA_DATA"):
        data_folder()
