import sys
import types

import pytest

from helpers.failing_workers import Mortal, made_up
from regtta.errors import MismatchError, MissingFileError, RegttaError
from regtta_bench.sweep.executors.ray import executor
from regtta_bench.sweep.executors.ray.cluster import list_machines
from regtta_bench.sweep.executors.ray.executor import RayExecutor

pytestmark = pytest.marker.usefixtures("cluster")


def test_a_machine_that_has_all_is_no_error(kit):
    RayExecutor().check(made_up(1, 1), kit)


def test_a_machine_without_the_data_is_named(kit):
    kit.note("data-is-missing")
    (machine,) = list_machines()
    with pytest.raises(MissingFileError, match=f"^On {machine.name}: There is no data.$"):
        RayExecutor().check(made_up(1, 1), kit)


def test_a_machine_with_another_version_is_named(kit, monkeypatch):
    monkeypatch.setattr(executor, "__version__", "9.9")
    (machine,) = list_machines()
    with pytest.raises(MismatchError, match=f"{machine.name} has regtta .*, but the sweep was started with 9.9"):
        RayExecutor().check(made_up(1, 1), kit)


def test_a_machine_that_lacks_a_module_of_the_users_is_named(kit, monkeypatch):
    module = types.ModuleType("only_here")
    module.Mine = type("Mine", (Mortal,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    (machine,) = list_machines()
    with pytest.raises(RegttaError, match=f"{machine.name} cannot unpickle the task .*No module named 'only_here'"):
        RayExecutor().check(made_up(1, 1), module.Mine(kit.notes, kit.models))


def test_where_there_is_no_gpu_the_device_is_the_cpu(kit):
    assert RayExecutor().default_device() == "cpu"
    with pytest.raises(RegttaError, match="No machine of the Ray cluster has a GPU"):
        RayExecutor().check(made_up(1, 1), Mortal(kit.notes, kit.models, device="cuda"))
