import os
import socket
import sys
import types

import pytest

from regtta.errors import MissingExtraError, OptionError, RegttaError
from regtta_bench.sweep.executors.factory import make_executor
from regtta_bench.sweep.executors.ray import cluster as connecting
from regtta_bench.sweep.executors.ray.cluster import connect_to_cluster


class FakeRay(types.ModuleType):
    """Fake of ``ray`` that records how it was started, or raises an error."""

    def __init__(self, error=None):
        super().__init__("ray")
        self.error, self.started, self.usage, self.down = error, None, None, 0

    def init(self, address, **options):
        self.started, self.usage = (address, options), os.environ["RAY_USAGE_STATS_ENABLED"]
        if self.error:
            raise self.error

    def shutdown(self):
        self.down += 1


@pytest.fixture
def install_fake(monkeypatch):
    def put(fake):
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
        monkeypatch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "")
        monkeypatch.setitem(sys.modules, "ray", fake)
        return fake

    return put


@pytest.fixture
def silent_port():
    """Yield a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_local_cluster_starts_quietly_and_is_shut_down(install_fake):
    fake = install_fake(FakeRay())
    with connect_to_cluster("local", cpus=3):
        assert fake.down == 0
    address, options = fake.started
    assert (address, options["num_cpus"], options["include_dashboard"]) == ("local", 3, False)
    assert options["log_to_driver"] is False
    assert (fake.usage, fake.down) == ("0", 1)


def test_an_error_in_the_block_closes_the_connection(install_fake):
    fake = install_fake(FakeRay())
    block = connect_to_cluster("local")
    block.__enter__()
    with pytest.raises(KeyboardInterrupt):
        block.gen.throw(KeyboardInterrupt)
    assert fake.down == 1


def test_a_missing_ray_names_the_extra(install_fake):
    install_fake(None)
    with pytest.raises(MissingExtraError, match=r'pip install "regtta\[ray\]"'), make_executor(ray="local"):
        pytest.fail("there is no ray")


@pytest.mark.parametrize("address", ["", "here", "host", "host:", ":6379", "http://host:80", "ray://host", "a b:1"])
def test_invalid_addresses_raise(address):
    with pytest.raises(OptionError, match="Expected --ray to be local, auto, HOST:PORT or ray://HOST:PORT"):
        connect_to_cluster(address).__enter__()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_closed_port_raises_at_once(scheme):
    address = f"{scheme}127.0.0.1:{closed_port()}"
    with pytest.raises(RegttaError, match=rf"No Ray cluster answers at {address} \(.*refused\)"):
        connect_to_cluster(address).__enter__()


def test_a_port_out_of_range_raises():
    with pytest.raises(RegttaError, match="No Ray cluster answers at 127.0.0.1:70000"):
        connect_to_cluster("127.0.0.1:70000").__enter__()


def test_an_unresponsive_port_raises_after_the_timeout(silent_port, monkeypatch):
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT", 1.0)
    with pytest.raises(RegttaError, match="No Ray cluster answers at .*no answer within 1 s"):
        connect_to_cluster(f"127.0.0.1:{silent_port}").__enter__()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionError("ray client connection timeout"), "No Ray cluster answers at ray://.*connection timeout"),
        (RuntimeError("Version mismatch: Ray 1\nand 2. More"), r"RuntimeError: Version mismatch: Ray 1 and 2\)"),
        (RuntimeError("AuthenticationError: no token"), "requires a token: set RAY_AUTH_MODE"),
    ],
)
def test_connection_errors_are_one_line(install_fake, silent_port, error, said):
    install_fake(FakeRay(error))
    with pytest.raises(RegttaError, match=said) as told:
        connect_to_cluster(f"ray://127.0.0.1:{silent_port}").__enter__()
    assert "\n" not in str(told.value)


def test_a_failed_start_raises(install_fake):
    install_fake(FakeRay(OSError("No space left on device")))
    with pytest.raises(RegttaError, match="Ray could not be started on this machine: OSError: No space left"):
        connect_to_cluster("local").__enter__()
