import gzip
import io
import tarfile

import pytest

from regtta.errors import InvalidFileError
from regtta_bench.data.archives import iter_entries


def member(name, content=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, link
    return info, io.BytesIO(content)


def archive(path, *members):
    with tarfile.open(path, "w:" if path.suffix == ".tar" else "w:gz") as file:
        for info, content in members:
            file.addfile(info, content)
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz"])
def test_the_files_of_an_archive_come_in_its_order(tmp_path, name):
    path = archive(
        tmp_path / name, member("x", kind=tarfile.DIRTYPE), member("x/b", b"bee" * 900), member("./x/a", b"")
    )
    read = [(entry.name, entry.size, entry.read(2700)) for entry in iter_entries(path)]
    assert read == [("x/b", 2700, b"bee" * 900), ("./x/a", 0, b"")]
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_the_files_of_a_folder_come_sorted(tmp_path):
    (tmp_path / "top" / "sub").mkdir(parents=True)
    (tmp_path / "top" / "z").write_bytes(b"1")
    (tmp_path / "top" / "sub" / "a").write_bytes(b"23")
    read = [(entry.name, entry.read(2)) for entry in iter_entries(tmp_path / "top")]
    assert read == [("top/sub/a", b"23"), ("top/z", b"1")]


def test_large_files_are_rejected_before_they_are_read(tmp_path):
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "a").write_bytes(b"123")
    path = archive(tmp_path / "a.tgz", member("a", b"123"))
    for place in (tmp_path / "top", path):
        (entry,) = iter_entries(place)
        with pytest.raises(InvalidFileError, match="has 3 bytes; at most 2"):
            entry.read(2)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "a\\..\\x"])
def test_paths_that_lead_out_of_the_archive_are_rejected(tmp_path, name):
    path = archive(tmp_path / "a.tar", member("a/fine", b"1"), member(name, b"2"))
    with pytest.raises(InvalidFileError, match="has a path outside the archive"):
        list(iter_entries(path))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_rejected(tmp_path, kind):
    path = archive(tmp_path / "a.tgz", member("x", kind=kind, link="../../etc/passwd"))
    with pytest.raises(InvalidFileError, match="'x' is a link or a device"):
        list(iter_entries(path))


def test_incomplete_archives_are_rejected(tmp_path):
    whole = archive(tmp_path / "whole.tar", member("a", b"x" * 5000)).read_bytes()
    packed = gzip.compress(whole)
    flipped = packed[:40] + bytes([packed[40] ^ 255]) + packed[41:]
    cases = {"a.tar": b"no tar" * 200, "b.tar": whole[:3000], "c.tgz": packed[:-30], "d.tgz": whole, "e.tgz": flipped}
    for name, raw in cases.items():
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(
            InvalidFileError, match=f"{name} (is not a complete tar archive|cannot be read)|is truncated"
        ):
            [entry.read(10_000) for entry in iter_entries(tmp_path / name)]
    (tmp_path / "a.zip").write_bytes(b"")
    with pytest.raises(InvalidFileError, match=r"a folder or an archive \(.tar, .tar.gz, .tgz\), found .*a.zip"):
        list(iter_entries(tmp_path / "a.zip"))


def test_a_link_out_of_a_folder_is_not_followed(tmp_path):
    inside, outside = tmp_path / "faces_0", tmp_path / "secret.txt"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "own.txt").write_text("own")
    (inside / "link.txt").symlink_to(outside)
    (inside / "alias.txt").symlink_to(inside / "own.txt")
    assert [entry.name for entry in iter_entries(inside)] == ["faces_0/alias.txt", "faces_0/own.txt"]
