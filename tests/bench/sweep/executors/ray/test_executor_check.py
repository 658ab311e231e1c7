import sys
import types

import pytest

from helpers.failing_workers import FailingWorkerConfig, make_fake_specs
from regtta.errors import MismatchError, MissingFileError, RegttaError
from regtta_bench.sweep.executors.ray import executor
from regtta_bench.sweep.executors.ray.cluster import list_machines
from regtta_bench.sweep.executors.ray.executor import RayExecutor

pytestmark = pytest.mark.usefixtures("cluster")


def test_a_complete_machine_passes(worker_config):
    RayExecutor().check(make_fake_specs(1, 1), worker_config)


def test_a_machine_without_data_is_named(worker_config):
    worker_config.set_flag("data-is-missing")
    (machine,) = list_machines()
    with pytest.raises(MissingFileError, match=f"^On {machine.name}: There is no data.$"):
        RayExecutor().check(make_fake_specs(1, 1), worker_config)


def test_a_machine_with_another_version_is_named(worker_config, monkeypatch):
    monkeypatch.setattr(executor, "__version__", "9.9")
    (machine,) = list_machines()
    with pytest.raises(MismatchError, match=f"{machine.name} has regtta .*, but the sweep was started with 9.9"):
        RayExecutor().check(make_fake_specs(1, 1), worker_config)


def test_a_machine_without_a_user_module_is_named(worker_config, monkeypatch):
    module = types.ModuleType("only_here")
    module.Mine = type("Mine", (FailingWorkerConfig,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    (machine,) = list_machines()
    with pytest.raises(RegttaError, match=f"{machine.name} cannot unpickle the task .*No module named 'only_here'"):
        RayExecutor().check(make_fake_specs(1, 1), module.Mine(worker_config.flags, worker_config.models))


def test_the_device_is_the_cpu_without_a_gpu(worker_config):
    assert RayExecutor().default_device() == "cpu"
    with pytest.raises(RegttaError, match="No machine of the Ray cluster has a GPU"):
        RayExecutor().check(
            make_fake_specs(1, 1), FailingWorkerConfig(worker_config.flags, worker_config.models, device="cuda")
        )
