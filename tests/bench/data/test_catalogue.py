import re

import pytest

from regtta.errors import MissingFileError
from regtta_bench.data import DATASETS, resolve_data_folder
from regtta_bench.data.catalogue import find_file, find_path, missing_dataset_error


@pytest.mark.parametrize("name", DATASETS)
def test_the_error_on_each_missing_data_set_says_where_to_get_and_put_it(name, tmp_path):
    entry = DATASETS[name]
    assert entry.title
    assert entry.origin
    assert entry.terms
    assert all(not place.startswith("/") and ".." not in place for place in entry.paths)
    words = f"{entry.title} is not in {tmp_path}. Get it from {entry.origin} (terms: {entry.terms}) and put it at"
    with pytest.raises(MissingFileError, match=re.escape(f"{words} {tmp_path / entry.paths[0]}.")):
        find_path(tmp_path, name)
    with pytest.raises(MissingFileError, match=re.escape(words)):
        find_file(tmp_path, name)


def test_the_table_cannot_be_written_to():
    with pytest.raises(TypeError):
        DATASETS["more"] = DATASETS["mnist"]


def test_places_are_tried_in_their_order(tmp_path):
    (tmp_path / "utkface").mkdir()
    assert find_path(tmp_path, "utkface").name == "utkface"
    (tmp_path / "UTKFace").mkdir()
    assert find_path(tmp_path, "utkface").name == "UTKFace"
    (tmp_path / "b").write_bytes(b"")
    assert find_file(tmp_path, "utkface", ("a", "b")) == tmp_path / "b"


def test_the_error_may_describe_another_problem():
    error = missing_dataset_error("mnist", "here", "there", found="It is half eaten.")
    assert str(error).startswith("It is half eaten. Get it from torchvision")
    assert str(error).endswith("put it at there. Or pass download=True; on the command line, --download.")


def test_the_folder_given_wins_over_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("REGTTA_DATA", str(tmp_path))
    assert resolve_data_folder() == tmp_path
    (tmp_path / "other").mkdir()
    assert resolve_data_folder(tmp_path / "other") == tmp_path / "other"
    with pytest.raises(MissingFileError, match="There is no folder"):
        resolve_data_folder(tmp_path / "absent")
    monkeypatch.delenv("REGTTA_DATA")
    with pytest.raises(MissingFileError, match="set REGTTA_DATA"):
        resolve_data_folder()
