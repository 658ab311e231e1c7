"""Connection to a Ray cluster, without Ray's log output and with a clear error if no cluster answers."""

import logging
import os
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from regtta.errors import OptionError, RegttaError
from regtta.optional_imports import import_optional

LOCAL, AUTO = "local", "auto"
PATIENCE = 30.0  # timeout in seconds for a cluster to answer

_CLIENT = "ray://"
_LONGEST = 300  # most characters of a reason
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^\s:/]+|\[[^\s\]]+\]):(?P<port>\d{1,5})")
_TOKENS = "https://docs.ray.io/en/latest/ray-security/token-auth.html"
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_ENABLE_AUTO_CONNECT": "0",  # do not connect to another cluster when the connection is lost
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # the sweep itself logs workers that died
}
_QUIETLY = {"log_to_driver": False, "logging_level": logging.ERROR}
# ray.init can hang for minutes and ignore Ctrl-C, so a first attempt runs in a subprocess that can be killed.
_TRIAL = "import logging, sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


@contextmanager
def connected(address: str, *, cpus: int | None = None) -> Iterator[None]:
    """Connect to a Ray cluster within a ``with`` block; a cluster that was started for it is shut down at the end.

    Args:
        address: ``"local"`` to start a cluster on this machine, ``"auto"`` for the cluster that this machine is part
            of, ``"host:port"`` for the same by its address, ``"ray://host:port"`` for a remote cluster.
        cpus: CPUs of a local cluster; None for all of this machine.

    Raises:
        OptionError: if the address has another form.
        MissingExtraError: if Ray is not installed.
        RegttaError: if no cluster answers or could be started.
    """
    _check_form(address)
    os.environ.update(_SETTINGS)  # Ray reads them when it is imported
    ray = import_optional("ray", "ray", "Running on a Ray cluster")
    _check_answers(address)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the error message covers it
            if address == LOCAL:
                ray.init(LOCAL, num_cpus=cpus, include_dashboard=False, **_QUIETLY)
            else:
                ray.init(address, **_QUIETLY)
    except Exception as error:  # Ray raises many types of errors here
        raise _no_cluster(address, f"{type(error).__name__}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_form(address: str) -> None:
    if address not in (LOCAL, AUTO) and not _ADDRESS.fullmatch(address):
        raise OptionError(
            f"Expected --ray to be local, auto, HOST:PORT or ray://HOST:PORT, found {address!r}. A cluster prints "
            "its address when it is started."
        )


def _check_answers(address: str) -> None:
    """Raise within bounded time if no cluster answers; Ray itself retries for minutes."""
    if address == LOCAL:
        return
    named = _ADDRESS.fullmatch(address)
    if named is not None:
        try:
            socket.create_connection((named["host"].strip("[]"), int(named["port"])), timeout=PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, str(error)) from error
    if address.startswith(_CLIENT):
        return  # Ray's client has a timeout of its own
    try:
        trial = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL, address],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
        raise _no_cluster(address, said, why=f"no answer within {PATIENCE:.0f} s") from error
    if trial.returncode:
        raise _no_cluster(address, trial.stderr)


def _no_cluster(address: str, said: str, why: str = "") -> RegttaError:
    """Return the error for a failed connection: ``said`` is Ray's message, ``why`` overrides it as the reason."""
    if "AuthToken" in said or "AuthenticationError" in said:
        return RegttaError(
            f"The Ray cluster at {address} requires a token: set RAY_AUTH_MODE and the token, see {_TOKENS}."
        )
    why = why or _first_sentence(said)
    if address == LOCAL:
        return RegttaError(f"Ray could not be started on this machine: {why}.")
    if address == AUTO:
        return RegttaError(
            f"No Ray cluster was found on this machine ({why}). Start one with ray start, or pass its address."
        )
    return RegttaError(
        f"No Ray cluster answers at {address} ({why}). HOST:PORT is for machines that are part of the cluster, "
        "ray://HOST:PORT (default port 10001) for all others."
    )


def _first_sentence(said: str) -> str:
    r"""Return the first sentence of a message, or of the error at the end of a traceback.

    Example:
        >>> _first_sentence("Traceback:\n  File 1\nray.RayError: No way. Try\nthis.")
        'ray.RayError: No way'
    """
    last = re.split(r"\n(?=[\w.]+(?:Error|Exception): )", said)[-1]
    return " ".join(last.split()).partition(". ")[0].rstrip(".")[:_LONGEST]
