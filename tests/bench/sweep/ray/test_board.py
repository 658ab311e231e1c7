import pytest
import ray

from regtta_bench.sweep.executors.ray import tasks as board

pytestmark = pytest.mark.usefixtures("cluster")


def standing():
    """A board whose process has started, however long that takes where others are at work."""
    wall = board.put_up()
    ray.get(wall.take.remote())
    return wall


def test_what_a_worker_wrote_is_read_once_and_in_order():
    wall = standing()

    def training(wall):
        pen = board.Writer(wall)
        for done in range(1, 4):
            pen("model", done, 3)
        pen.put_down()

    ray.get(ray.remote(training).remote(wall))
    assert board.read(wall) == [("model", 1, 3), ("model", 2, 3), ("model", 3, 3)]
    assert board.read(wall) == []


def test_a_lost_board_holds_nothing_up():
    wall = standing()
    ray.kill(wall)
    assert board.read(wall) == []
