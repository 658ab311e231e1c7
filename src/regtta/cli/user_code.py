"""Models and loaders of the user, imported by name, with errors that say where they come from."""

import importlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor, nn

import regtta
from regtta.errors import MismatchError, ModelError, OptionError, RegttaError
from regtta.options import did_you_mean
from regtta.persistence import load_weights

_MAX_MESSAGE_LENGTH = 400


@contextmanager
def convert_user_errors(describe: Callable[[], str], advice: str = "") -> Iterator[None]:
    """Convert any exception of the user's model, factory or loader into a ModelError with a one-line message.

    Args:
        describe: returns a description of what failed; called only on failure.
        advice: what to do about it, appended to the message.

    Example:
        >>> with convert_user_errors(lambda: "The factory failed"):
        ...     raise ValueError("no such width")
        Traceback (most recent call last):
        regtta.errors.ModelError: The factory failed: ValueError: no such width.
    """
    try:
        yield
    except RegttaError:
        raise
    except Exception as error:  # user code may raise anything
        raise ModelError(f"{describe()}: {describe_user_error(error)}. {advice}".strip()) from error


def describe_user_error(error: BaseException) -> str:
    r"""Return the type of an error, its message on one line and the last line of user code in its traceback.

    Example:
        >>> describe_user_error(ValueError("too\nmany"))
        'ValueError: too many'
    """
    text = " ".join(str(error).split()).rstrip(".")
    if len(text) > _MAX_MESSAGE_LENGTH:
        text = text[:_MAX_MESSAGE_LENGTH] + "…"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_user_file(frame.filename)]
    location = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {text}{location}" if text else f"{type(error).__name__}{location}"


def _is_user_file(filename: str) -> bool:
    """Return True if a file belongs neither to regtta, nor to Python, nor to an installed package."""
    if filename.startswith("<"):
        return False
    path = Path(filename)
    foreign = (Path(regtta.__file__).parent, Path(sysconfig.get_path("stdlib")))
    return "site-packages" not in path.parts and not any(path.is_relative_to(folder) for folder in foreign)


def is_object_reference(text: str) -> bool:
    """Return True if ``text`` has the form ``package.module:name``.

    Example:
        >>> is_object_reference("models.resnet:make"), is_object_reference("data/target.csv")
        (True, False)
    """
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def import_object(text: str, option: str) -> object:
    """Import the object ``package.module:name``; the working directory is searched as well.

    Args:
        text: value of the option.
        option: name of the option, such as ``--model``, for error messages.

    Example:
        >>> import_object("math:floor", "--model")(2.5)
        2
    """
    if not is_object_reference(text):
        raise OptionError(f"Expected {option} to be package.module:name, found {text!r}.")
    module_name, _, name = text.partition(":")
    module = _import_module(module_name, option)
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError as error:
        public = [known for known in vars(module) if not known.startswith("_")]
        hint = did_you_mean(name, public)
        raise OptionError(f"{option} {text}: {module_name!r} has no {name!r}.{hint}") from error


def _import_module(name: str, option: str) -> object:
    # For a console script, sys.path holds the folder of the script instead of the working directory.
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise OptionError(
                f"{option}: there is no module {error.name!r} here or among the installed packages. Run "
                "regtta from the folder that contains it."
            ) from error
        raise OptionError(f"{option}: {name!r} cannot be imported: {describe_user_error(error)}.") from error
    except Exception as error:  # a module may raise anything on import
        raise OptionError(f"{option}: {name!r} cannot be imported: {describe_user_error(error)}.") from error
    finally:
        if added and here in sys.path:
            # The working directory comes first for the user's module only: a file such as pandas.py in it must not
            # shadow the packages that regtta imports later.
            sys.path.remove(here)
            sys.path.append(here)


_MAX_NAMED = 3


def load_model(factory: str, weights: Path | None = None, device: str | None = None) -> nn.Module:
    """Return the model that ``factory`` creates, with ``weights`` loaded, on ``device``.

    Args:
        factory: ``package.module:name`` of a ``torch.nn.Module``, or of a function without arguments that returns one.
        weights: state dict, in safetensors or from ``torch.save``.
        device: such as ``cuda:0``; by default the one the factory chose.
    """
    model = _make_model(factory)
    if weights is not None:
        _load_state(model, load_weights(weights), f"The weights {weights} do not fit the model of {factory}")
    if device is not None:
        _move_to_device(model, device)
    return model


def floating_dtype(model: nn.Module) -> torch.dtype:
    """Return the data type of the model's first floating-point parameter; float32 if it has none.

    Example:
        >>> floating_dtype(nn.Linear(2, 1).double())
        torch.float64
    """
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _make_model(factory: str) -> nn.Module:
    model = import_object(factory, "--model")
    if not isinstance(model, nn.Module):
        if not callable(model):
            raise OptionError(
                f"Expected --model {factory} to be a function that returns a model, found {type(model).__name__}."
            )
        with convert_user_errors(lambda: f"--model {factory} raised", "It is called without arguments."):
            model = model()
    if not isinstance(model, nn.Module):
        raise ModelError(f"Expected {factory} to return a torch.nn.Module, found {type(model).__name__}.")
    return model


def _load_state(model: nn.Module, weights: Mapping[str, Tensor], message: str) -> None:
    wanted = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    # Older checkpoints lack the batch counter of BatchNorm, and torch accepts that as well.
    missing = [n for n in wanted if n not in weights and not n.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in wanted]
    misshapen = [
        f"{name!r} is {tuple(weights[name].shape)} in the file and {tuple(value.shape)} in the model"
        for name, value in wanted.items()
        if name in weights and weights[name].shape != value.shape
    ]
    problems = [f"missing {_list_names(missing)}"] if missing else []
    problems += [f"unexpected {_list_names(unexpected)}"] if unexpected else []
    problems += misshapen[:_MAX_NAMED]
    if problems:
        raise MismatchError(f"{message}: {'; '.join(problems)}. {_suggest_fix(unexpected)}")
    with convert_user_errors(lambda: message):
        model.load_state_dict(dict(weights), strict=False)


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(repr(name) for name in names[:_MAX_NAMED]) + more


def _suggest_fix(unexpected: list[str]) -> str:
    if unexpected and all(name.startswith("module.") for name in unexpected):
        return "They come from a DataParallel wrapper: save model.module.state_dict() instead."
    return "Pass the weights of this architecture, or the factory of the model that the weights belong to."


def _move_to_device(model: nn.Module, device: str) -> None:
    try:
        model.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch raises any of these
        raise OptionError(
            f"Cannot use --device {device}: {describe_user_error(error)}. Leave it out to run on the CPU."
        ) from error
