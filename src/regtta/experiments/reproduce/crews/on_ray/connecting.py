"""Being connected to a Ray cluster: which one, without its chatter, and a clear error where none answers."""

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
PATIENCE = 30.0  # seconds for a cluster to answer

_CLIENT = "ray://"
_LONGEST = 300  # characters of a reason
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^\s:/]+|\[[^\s\]]+\]):(?P<port>\d{1,5})")
_TOKENS = "https://docs.ray.io/en/latest/ray-security/token-auth.html"
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to the makers of Ray
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a connection that is lost is lost, and no other cluster is looked for
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what Ray prints of workers that died: the sweep says itself what matters
}
_QUIETLY = {"log_to_driver": False, "logging_level": logging.ERROR}
# What connects can hang for minutes, deaf to Control-C: a process can be given up.
_TRIAL = "import logging, sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


@contextmanager
def connected(address: str, *, cpus: int | None = None) -> Iterator[None]:
    """A connection to a cluster for the block; one that it started itself ends with it.

    Args:
        address: ``"local"`` to start one on this machine alone, ``"auto"`` for the one that this machine is part of,
            ``"host:port"`` for the same by its address, ``"ray://host:port"`` for one that this machine is no part of.
        cpus: of one that is started here; None for all there are.
    """
    _check_form(address)
    os.environ.update(_SETTINGS)  # before Ray is imported, which reads them then
    ray = import_optional("ray", "ray", "Running on a Ray cluster")
    _check_answers(address)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the error says it in one line
            if address == LOCAL:
                ray.init(LOCAL, num_cpus=cpus, include_dashboard=False, **_QUIETLY)
            else:
                ray.init(address, **_QUIETLY)
    except Exception as error:  # Ray has errors of many kinds for this
        raise _no_cluster(address, f"{type(error).__name__}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_form(address: str) -> None:
    if address not in (LOCAL, AUTO) and not _ADDRESS.fullmatch(address):
        raise OptionError(
            f"Expected --ray to be local, auto, HOST:PORT or ray://HOST:PORT, found {address!r}. Clusters give "
            "their address when they are started."
        )


def _check_answers(address: str) -> None:
    """Raise within bounded time where nothing answers; Ray itself tries on for minutes."""
    if address == LOCAL:
        return
    named = _ADDRESS.fullmatch(address)
    if named is not None:
        try:
            socket.create_connection((named["host"].strip("[]"), int(named["port"])), timeout=PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, str(error)) from error
    if address.startswith(_CLIENT):
        return  # a client of Ray gives up by itself
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
    """The error for what Ray ``said`` when it could not connect; ``why`` in words of our own where we know better."""
    if "AuthToken" in said or "AuthenticationError" in said:
        return RegttaError(f"The Ray cluster at {address} asks for a token: set RAY_AUTH_MODE and it, see {_TOKENS}.")
    why = why or _first_sentence(said)
    if address == LOCAL:
        return RegttaError(f"Ray could not be started on this machine: {why}.")
    if address == AUTO:
        return RegttaError(
            f"No Ray cluster was found on this machine ({why}). Start one with ray start, or name its address."
        )
    return RegttaError(
        f"No Ray cluster answers at {address} ({why}). HOST:PORT is for machines that are part of the cluster, "
        "ray://HOST:PORT (port 10001 unless told otherwise) for all others."
    )


def _first_sentence(said: str) -> str:
    r"""Of the error that ends a traceback, or of a message that is none.

    Example:
        >>> _first_sentence("Traceback:\n  File 1\nray.RayError: No way. Try\nthis.")
        'ray.RayError: No way'
    """
    last = re.split(r"\n(?=[\w.]+(?:Error|Exception): )", said)[-1]
    return " ".join(last.split()).partition(". ")[0].rstrip(".")[:_LONGEST]
