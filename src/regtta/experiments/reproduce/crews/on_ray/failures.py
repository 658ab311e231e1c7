"""What goes wrong on other machines: what a run raised, who was lost, and what is the user's to fix."""

from regtta.errors import RegttaError

_NO_MODULE = "No module named"
_LONGEST = 200  # characters of a reason


def raised(error: Exception, where: str = "A machine of the Ray cluster") -> BaseException:
    """What a task raised, as it would have been raised here.

    Args:
        error: Ray's, around it.
        where: the machine, for what says that it cannot take part.
    """
    from ray.exceptions import RayError

    cause: BaseException | None = getattr(error, "cause", None)
    # Ray's own words are for what went wrong before the task was begun: something could not be imported there.
    if cause is None or isinstance(cause, RayError) or "failed to import" in str(cause):
        return _unreadable(where, cause or error)
    return cause


def is_loss(error: Exception) -> bool:
    """Whether a worker or what it needed was lost, so that another may do better."""
    from ray.exceptions import ObjectLostError, RayError, RayTaskError

    if isinstance(error, RayTaskError):  # the task itself raised; of Ray's own, lost files alone are no one's fault
        return isinstance(error.cause, ObjectLostError)
    return isinstance(error, RayError)


def disconnected(error: Exception) -> RegttaError:
    """The error for a cluster that can no longer be asked anything."""
    if _NO_MODULE in str(error):  # the head reads what a client sends, and hangs up where it cannot
        return _unreadable("The head of the Ray cluster", error)
    return RegttaError(
        f"The connection to the Ray cluster was lost ({type(error).__name__}). All runs so far are kept: the same "
        "command goes on where it was."
    )


def _unreadable(where: str, error: BaseException) -> RegttaError:
    lines = str(error).splitlines() or [type(error).__name__]
    why = next((line for line in lines if _NO_MODULE in line), lines[0]).strip()
    return RegttaError(
        f"{where} cannot read what it is sent ({why[:_LONGEST]}). Install the same regtta on every machine, and the "
        "modules of methods of your own."
    )
