import sys
import types

import pytest

from regtta_bench.sweep.executors.factory import hired
from regtta_bench.sweep.executors.local import Here, Processes
from regtta_bench.sweep.executors.ray.executor import OnRay


@pytest.mark.parametrize(
    ("asked", "kind", "jobs"),
    [
        ({}, Here, None),
        ({"jobs": 1}, Here, None),
        ({"jobs": 3}, Processes, 3),
        ({"ray": "local"}, OnRay, None),
        ({"ray": "local", "jobs": 3}, OnRay, 3),
    ],
)
def test_who_is_hired_by_what_is_asked(asked, kind, jobs, monkeypatch):
    ray = types.SimpleNamespace(init=lambda *_, **__: None, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with hired(**asked) as crew:
        assert type(crew) is kind
        assert getattr(crew, "jobs", None) == jobs
