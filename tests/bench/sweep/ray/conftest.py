"""One small Ray cluster on this machine for all tests here, since it takes seconds to start."""

import importlib.util
import os
import secrets
import tempfile
from pathlib import Path

import pytest

from helpers.failing_workers import Mortal
from regtta_bench.sweep.executors.ray.cluster import connect_to_cluster

TESTS = Path(__file__).parents[3]
collect_ignore_glob = [] if importlib.util.find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    """Two CPUs; the workers find the modules of these tests, and put aside what they need in ``TMPDIR``.

    Gives its address.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # Ray's own sockets need a short path
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("put-aside")))
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        # A token of the cluster's own, so that none is written into the home of whoever runs the tests.
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.delenv("RAY_AUTH_MODE", raising=False)  # which Ray sets by itself
        patch.setenv("RAY_USAGE_STATS_ENABLED", "1")  # put back after; it is the library's to switch it off
        with connect_to_cluster("local", cpus=2):
            import ray

            yield ray.get_runtime_context().gcs_address


@pytest.fixture
def kit(tmp_path):
    """Workers who do as they are told."""
    (tmp_path / "notes").mkdir()
    return Mortal(tmp_path / "notes", tmp_path / "models")
