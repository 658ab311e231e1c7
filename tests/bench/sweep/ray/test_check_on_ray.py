import sys
import types

import pytest

from helpers.failing_workers import Mortal, made_up
from regtta.errors import MismatchError, MissingFileError, RegttaError
from regtta_bench.sweep.executors.ray import executor as crew
from regtta_bench.sweep.executors.ray.cluster import machines
from regtta_bench.sweep.executors.ray.executor import OnRay

pytestmark = pytest.mark.usefixtures("cluster")


def test_a_machine_that_has_all_is_no_error(kit):
    OnRay().check(made_up(1, 1), kit)


def test_a_machine_without_the_data_is_named(kit):
    kit.note("data-is-missing")
    (machine,) = machines()
    with pytest.raises(MissingFileError, match=f"^On {machine.name}: There is no data.$"):
        OnRay().check(made_up(1, 1), kit)


def test_a_machine_with_another_version_is_named(kit, monkeypatch):
    monkeypatch.setattr(crew, "__version__", "9.9")
    (machine,) = machines()
    with pytest.raises(MismatchError, match=f"{machine.name} has regtta .*, but the sweep was started with 9.9"):
        OnRay().check(made_up(1, 1), kit)


def test_a_machine_that_lacks_a_module_of_the_users_is_named(kit, monkeypatch):
    module = types.ModuleType("only_here")
    module.Mine = type("Mine", (Mortal,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    (machine,) = machines()
    with pytest.raises(RegttaError, match=f"{machine.name} cannot unpickle the task .*No module named 'only_here'"):
        OnRay().check(made_up(1, 1), module.Mine(kit.notes, kit.models))


def test_where_there_is_no_gpu_the_device_is_the_cpu(kit):
    assert OnRay().best_device() == "cpu"
    with pytest.raises(RegttaError, match="No machine of the Ray cluster has a GPU"):
        OnRay().check(made_up(1, 1), Mortal(kit.notes, kit.models, device="cuda"))
