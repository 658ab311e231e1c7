import pytest

from helpers.failing_workers import FakeSource
from regtta_bench.sweep.executors.ray.tasks import (
    DriverFiles,
    fetch_files,
    marker_file,
    remove_scratch_folder,
    scratch_folder,
    shares_disk,
    source_files,
)
from regtta_bench.sweep.source_models import SourceModelCache

SOURCE, OTHER = FakeSource("one"), FakeSource("another")


@pytest.fixture
def folders(tmp_path):
    """Caches of the driver and of a worker."""
    return SourceModelCache(tmp_path / "here"), SourceModelCache(tmp_path / "there")


def test_source_files_exclude_checkpoints(folders):
    models, _ = folders
    for path in (models.path(SOURCE), models.statistics_path(SOURCE, "moments"), models.path(OTHER)):
        path.write_bytes(b"whole")
    models.checkpoint_path(SOURCE).write_bytes(b"half")
    assert source_files(SOURCE, models.folder) == [models.statistics_path(SOURCE, "moments"), models.path(SOURCE)]


@pytest.mark.usefixtures("cluster")
def test_files_travel_from_worker_to_driver_to_worker(folders):
    here, there = folders
    driver = DriverFiles(here.folder)
    assert driver.references(SOURCE) == {}
    name = there.path(SOURCE).name
    driver.save(SOURCE, {name: b"trained"})
    assert here.path(SOURCE).read_bytes() == b"trained"
    fetch_files(driver.references(SOURCE), there.folder)
    assert there.path(SOURCE).read_bytes() == b"trained"
    # Existing files are never overwritten.
    driver.save(SOURCE, {name: b"trained again"})
    there.path(SOURCE).write_bytes(b"as it is")
    fetch_files(driver.references(SOURCE), there.folder)
    assert (here.path(SOURCE).read_bytes(), there.path(SOURCE).read_bytes()) == (b"trained", b"as it is")


@pytest.mark.usefixtures("cluster")
def test_each_file_is_sent_once(folders):
    here, _ = folders
    here.path(SOURCE).write_bytes(b"model")
    driver = DriverFiles(here.folder)
    first = dict(driver.references(SOURCE))
    driver.save(SOURCE, {here.statistics_path(SOURCE, "moments").name: b"moments"})
    second = driver.references(SOURCE)
    assert len(first) == 1
    assert len(second) == 2
    assert first.items() <= second.items()


def test_file_names_cannot_leave_the_folder(folders, tmp_path):
    here, _ = folders
    DriverFiles(here.folder).save(SOURCE, {"../../outside.safetensors": b"x"})
    assert not (tmp_path.parent / "outside.safetensors").exists()
    assert (here.folder / "outside.safetensors").exists()


def test_a_shared_disk_is_recognised_by_a_temporary_marker(tmp_path):
    mine = tmp_path / "new" / "models"
    with marker_file(mine) as marker:
        assert shares_disk(mine, marker)
        assert not shares_disk(tmp_path, marker)
    assert list(mine.iterdir()) == []


def test_the_scratch_folder_is_private_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = scratch_folder(".sweep-1")
    assert folder == scratch_folder(".sweep-1")
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    (folder / "model").touch()
    remove_scratch_folder(".sweep-1")
    assert not folder.exists()
