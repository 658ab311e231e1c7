"""Classification of Ray errors: exceptions of a task, lost workers, and a lost connection."""

from regtta.errors import RegttaError

_NO_MODULE = "No module named"
_LONGEST = 200  # most characters of a reason


def raised(error: Exception, where: str = "A machine of the Ray cluster") -> BaseException:
    """Return the original exception of a task, or the error for a machine that cannot unpickle it.

    Args:
        error: Ray's exception that wraps it.
        where: name of the machine for the error message.
    """
    from ray.exceptions import RayError

    cause: BaseException | None = getattr(error, "cause", None)
    # Ray's own errors mean that the task did not start: a module could not be imported on the machine.
    if cause is None or isinstance(cause, RayError) or "failed to import" in str(cause):
        return _unreadable(where, cause or error)
    return cause


def is_loss(error: Exception) -> bool:
    """Return True if a worker or an object it needed was lost, so that the task can be retried."""
    from ray.exceptions import ObjectLostError, RayError, RayTaskError

    if isinstance(error, RayTaskError):  # raised by the task itself; only lost objects are worth a retry
        return isinstance(error.cause, ObjectLostError)
    return isinstance(error, RayError)


def disconnected(error: Exception) -> RegttaError:
    """Return the error for a lost connection to the cluster."""
    if _NO_MODULE in str(error):  # the head node disconnects if it cannot unpickle what a client sends
        return _unreadable("The head of the Ray cluster", error)
    return RegttaError(
        f"The connection to the Ray cluster was lost ({type(error).__name__}). All completed runs are saved: repeat "
        "the command to resume."
    )


def _unreadable(where: str, error: BaseException) -> RegttaError:
    lines = str(error).splitlines() or [type(error).__name__]
    why = next((line for line in lines if _NO_MODULE in line), lines[0]).strip()
    return RegttaError(
        f"{where} cannot unpickle the task ({why[:_LONGEST]}). Install the same version of regtta and the modules of "
        "your own methods on every machine."
    )
