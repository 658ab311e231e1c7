"""One small Ray cluster on this machine for all tests of the package, since it takes seconds to start."""

import importlib.util
import os
import secrets
import tempfile
from pathlib import Path

import pytest

from helpers.failing_workers import FailingWorkerConfig
from regtta_bench.sweep.executors.ray.cluster import connect_to_cluster

TESTS = Path(__file__).parents[4]
collect_ignore_glob = [] if importlib.util.find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    """Yield the address of a cluster with two CPUs.

    Its workers can import the modules of the tests, and have a ``TMPDIR`` of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # Ray's own sockets need a short path
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        # A token of the cluster's own, so that none is written into the home directory.
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.delenv("RAY_AUTH_MODE", raising=False)  # which Ray sets by itself
        patch.setenv("RAY_USAGE_STATS_ENABLED", "1")  # restored afterwards; the library must switch it off
        with connect_to_cluster("local", cpus=2):
            import ray

            yield ray.get_runtime_context().gcs_address


@pytest.fixture
def worker_config(tmp_path):
    """Configuration of workers that fail on request."""
    (tmp_path / "flags").mkdir()
    return FailingWorkerConfig(tmp_path / "flags", tmp_path / "models")
