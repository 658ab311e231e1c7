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
    """Remembers how it was started, or refuses with an error."""

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
def put_in_place(monkeypatch):
    def put(fake):
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
        monkeypatch.setenv("RAY_DEDUP_LOGS_SKIP_REGEX", "")
        monkeypatch.setitem(sys.modules, "ray", fake)
        return fake

    return put


@pytest.fixture
def silent_port():
    """Something that listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_cluster_of_ones_own_starts_quietly_without_dashboard_and_ends_with_the_block(put_in_place):
    fake = put_in_place(FakeRay())
    with connect_to_cluster("local", cpus=3):
        assert fake.down == 0
    address, options = fake.started
    assert (address, options["num_cpus"], options["include_dashboard"]) == ("local", 3, False)
    assert options["log_to_driver"] is False
    assert (fake.usage, fake.down) == ("0", 1)


def test_a_block_that_is_left_by_an_error_ends_the_connection_too(put_in_place):
    fake = put_in_place(FakeRay())
    block = connect_to_cluster("local")
    block.__enter__()
    with pytest.raises(KeyboardInterrupt):
        block.gen.throw(KeyboardInterrupt)
    assert fake.down == 1


def test_without_ray_it_is_said_what_to_install(put_in_place):
    put_in_place(None)
    with pytest.raises(MissingExtraError, match=r'pip install "regtta\[ray\]"'), make_executor(ray="local"):
        pytest.fail("there is no ray")


@pytest.marker.parametrize("address", ["", "here", "host", "host:", ":6379", "http://host:80", "ray://host", "a b:1"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(OptionError, match="Expected --ray to be local, auto, HOST:PORT or ray://HOST:PORT"):
        connect_to_cluster(address).__enter__()


@pytest.marker.parametrize("scheme", ["", "ray://"])
def test_where_nothing_listens_that_is_said_at_once(scheme):
    address = f"{scheme}127.0.0.1:{closed_port()}"
    with pytest.raises(RegttaError, match=rf"No Ray cluster answers at {address} \(.*refused\)"):
        connect_to_cluster(address).__enter__()


def test_a_port_beyond_all_ports_is_no_crash():
    with pytest.raises(RegttaError, match="No Ray cluster answers at 127.0.0.1:70000"):
        connect_to_cluster("127.0.0.1:70000").__enter__()


def test_where_something_else_listens_it_is_not_waited_for_long(silent_port, monkeypatch):
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT", 1.0)
    with pytest.raises(RegttaError, match="No Ray cluster answers at .*no answer within 1 s"):
        connect_to_cluster(f"127.0.0.1:{silent_port}").__enter__()


@pytest.marker.parametrize(
    ("error", "said"),
    [
        (ConnectionError("ray client connection timeout"), "No Ray cluster answers at ray://.*connection timeout"),
        (RuntimeError("Version mismatch: Ray 1\nand 2. More"), r"RuntimeError: Version mismatch: Ray 1 and 2\)"),
        (RuntimeError("AuthenticationError: no token"), "requires a token: set RAY_AUTH_MODE"),
    ],
)
def test_why_a_cluster_refuses_is_told_in_one_line(put_in_place, silent_port, error, said):
    put_in_place(FakeRay(error))
    with pytest.raises(RegttaError, match=said) as told:
        connect_to_cluster(f"ray://127.0.0.1:{silent_port}").__enter__()
    assert "\n" not in str(told.value)


def test_a_machine_where_ray_cannot_start_says_so(put_in_place):
    put_in_place(FakeRay(OSError("No space left on device")))
    with pytest.raises(RegttaError, match="Ray could not be started on this machine: OSError: No space left"):
        connect_to_cluster("local").__enter__()
