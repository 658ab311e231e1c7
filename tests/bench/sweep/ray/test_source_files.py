import pytest

from helpers.failing_workers import MadeUpSource
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

SOURCE, OTHER = MadeUpSource("one"), MadeUpSource("another")


@pytest.fixture
def folders(tmp_path):
    """The driver's and a worker's."""
    return SourceModelCache(tmp_path / "here"), SourceModelCache(tmp_path / "there")


def test_model_and_statistics_are_its_files_and_no_half_training(folders):
    models, _ = folders
    for path in (models.path(SOURCE), models.statistics_path(SOURCE, "moments"), models.path(OTHER)):
        path.write_bytes(b"whole")
    models.checkpoint_path(SOURCE).write_bytes(b"half")
    assert source_files(SOURCE, models.folder) == [models.statistics_path(SOURCE, "moments"), models.path(SOURCE)]


@pytest.marker.usefixtures("cluster")
def test_files_come_back_from_a_worker_and_go_to_the_next_as_they_are(folders):
    here, there = folders
    driver = DriverFiles(here.folder)
    assert driver.of(SOURCE) == {}
    name = there.path(SOURCE).name
    driver.keep(SOURCE, {name: b"trained"})
    assert here.path(SOURCE).read_bytes() == b"trained"
    fetch_files(driver.of(SOURCE), there.folder)
    assert there.path(SOURCE).read_bytes() == b"trained"
    # The first training is the one that counts, here and there.
    driver.keep(SOURCE, {name: b"trained again"})
    there.path(SOURCE).write_bytes(b"as it is")
    fetch_files(driver.of(SOURCE), there.folder)
    assert (here.path(SOURCE).read_bytes(), there.path(SOURCE).read_bytes()) == (b"trained", b"as it is")


@pytest.marker.usefixtures("cluster")
def test_a_file_is_sent_once_and_new_ones_after_it(folders):
    here, _ = folders
    here.path(SOURCE).write_bytes(b"model")
    driver = DriverFiles(here.folder)
    first = dict(driver.of(SOURCE))
    driver.keep(SOURCE, {here.statistics_path(SOURCE, "moments").name: b"moments"})
    second = driver.of(SOURCE)
    assert len(first) == 1
    assert len(second) == 2
    assert first.items() <= second.items()


def test_a_name_from_elsewhere_stays_inside_the_folder(folders, tmp_path):
    here, _ = folders
    DriverFiles(here.folder).keep(SOURCE, {"../../outside.safetensors": b"x"})
    assert not (tmp_path.parent / "outside.safetensors").exists()
    assert (here.folder / "outside.safetensors").exists()


def test_a_shared_disk_is_known_by_a_file_that_goes_with_the_sweep(tmp_path):
    mine = tmp_path / "new" / "models"
    with marker_file(mine) as marker:
        assert shares_disk(mine, marker)
        assert not shares_disk(tmp_path, marker)
    assert list(mine.iterdir()) == []


def test_scratch_is_the_machines_own_and_goes(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = scratch_folder(".sweep-1")
    assert folder == scratch_folder(".sweep-1")
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    (folder / "model").touch()
    remove_scratch_folder(".sweep-1")
    assert not folder.exists()
