"""What results were made with: versions and device, as every record of a run names them."""

import platform

import torch

from regtta._version import __version__


def versions() -> dict[str, str]:
    """Of regtta, torch and Python.

    Example:
        >>> list(versions())
        ['regtta', 'torch', 'python']
    """
    return {"regtta": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def device_name(device: torch.device | str) -> str:
    """What a device is called: a GPU by its own name.

    Example:
        >>> device_name("cpu")
        'cpu'
    """
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
