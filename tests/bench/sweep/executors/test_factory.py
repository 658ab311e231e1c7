import sys
import types

import pytest

from regtta_bench.sweep.executors.factory import make_executor
from regtta_bench.sweep.executors.local import ProcessExecutor, SequentialExecutor
from regtta_bench.sweep.executors.ray.executor import RayExecutor


@pytest.mark.parametrize(
    ("asked", "kind", "jobs"),
    [
        ({}, SequentialExecutor, None),
        ({"jobs": 1}, SequentialExecutor, None),
        ({"jobs": 3}, ProcessExecutor, 3),
        ({"ray": "local"}, RayExecutor, None),
        ({"ray": "local", "jobs": 3}, RayExecutor, 3),
    ],
)
def test_the_executor_follows_from_the_options(asked, kind, jobs, monkeypatch):
    ray = types.SimpleNamespace(init=lambda *_, **__: None, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with make_executor(**asked) as executor:
        assert type(executor) is kind
        assert getattr(executor, "jobs", None) == jobs
