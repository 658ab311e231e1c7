from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RaySystemError, WorkerCrashedError
from ray.exceptions import RayTaskError as Raised

from regtta.errors import HeadError, RegttaError
from regtta_bench.sweep.executors.ray.executor import connection_lost_error, is_worker_loss, unwrap_task_error


def in_task(cause):
    return Raised("work", "a traceback", cause)


def test_errors_of_tasks_are_unwrapped():
    for cause in (HeadError("No head."), ZeroDivisionError("0")):
        assert unwrap_task_error(in_task(cause)) is cause
        assert not is_worker_loss(in_task(cause))


def test_lost_workers_machines_and_objects_are_losses():
    for error in (WorkerCrashedError(), NodeDiedError("gone"), OutOfMemoryError("full")):
        assert is_worker_loss(error)
    assert is_worker_loss(in_task(ObjectLostError("ab", "owner", "site")))


def test_import_errors_name_the_machine():
    broken = in_task(RaySystemError(ModuleNotFoundError("No module named 'mine'"), "long\ntraceback"))
    assert not is_worker_loss(broken)
    told = unwrap_task_error(broken, "node7")
    assert isinstance(told, RegttaError)
    assert str(told).startswith("node7 cannot unpickle the task (System error: No module named 'mine')")
    unknown = in_task(RuntimeError("The remote function failed to import on the worker.\nNo module named 'regtta'"))
    assert "(No module named 'regtta')" in str(unwrap_task_error(unknown, "node7"))


def test_a_lost_connection_states_that_runs_are_saved():
    assert "All completed runs are saved" in str(connection_lost_error(ConnectionError("reset")))
    assert "No module named 'mine'" in str(connection_lost_error(ConnectionError("details = No module named 'mine'")))
