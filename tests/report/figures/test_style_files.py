import pytest

from regtta.errors import ExistingFileError, MissingFileError, OptionError
from regtta.report.figures import save_figure
from regtta.report.figures.style import new_figure


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("A.PDF", b"%PDF")])
def test_the_suffix_determines_the_format(tmp_path, name, start):
    path = save_figure(new_figure(), tmp_path / name)
    assert path == tmp_path / name
    assert path.read_bytes().startswith(start)
    assert [item.name for item in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_other_suffixes_are_rejected(tmp_path, name):
    with pytest.raises(OptionError, match=r"\.png, \.svg or \.pdf"):
        save_figure(new_figure(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_without_overwrite(tmp_path):
    path = tmp_path / "mine.png"
    path.write_text("mine")
    with pytest.raises(ExistingFileError, match="overwrite=True"):
        save_figure(new_figure(), path)
    assert path.read_text() == "mine"
    save_figure(new_figure(), str(path), overwrite=True)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(MissingFileError, match="no folder"):
        save_figure(new_figure(), tmp_path / "nowhere" / "a.png")
