"""Software versions and device name for the records of runs."""

import platform

import torch

from regtta._version import __version__


def versions() -> dict[str, str]:
    """Return the versions of regtta, torch and Python.

    Example:
        >>> list(versions())
        ['regtta', 'torch', 'python']
    """
    return {"regtta": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def device_name(device: torch.device | str) -> str:
    """Return the type of ``device``, or the model name of a GPU.

    Example:
        >>> device_name("cpu")
        'cpu'
    """
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
