"""A user's folder: a model file, its weights, source and target data in every format."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file

COLUMNS = ["a", "b", "c"]
MODEL = ["--model", "mymodel:make", "--weights", "weights.safetensors"]
SOURCE_ROWS, TARGET_ROWS, LABELLED_ROWS = 120, 70, 32

MODULE = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def make_two_outputs():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def make_double():
    return make().double()


def make_wider():
    return nn.Sequential(nn.Linear(3, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 1))


def make_plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


def fails():
    raise ValueError("no weights\\nto be found")


number = 3
table = torch.randn(70, 3, generator=torch.Generator().manual_seed(3)) * 2 + 1
labels = table.sum(1)
batches = list(zip(table.split(16), labels.split(16)))
dicts = [{"image": x, "age": y} for x, y in batches]
once = iter(batches)
bare = list(table.split(16))


def generator():
    yield from batches


def breaks_off():
    yield batches[0]
    raise OSError("the disk is gone")
"""


def make_workspace(folder: Path) -> Path:
    """Fill ``folder``; all target files hold the same numbers."""
    (folder / "mymodel.py").write_text(MODULE)
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(SOURCE_ROWS, 3, generator=generator)
    target = torch.randn(TARGET_ROWS, 3, generator=generator) * 1.5 + 1
    write_table(source, folder / "source.csv")
    write_table(target, folder / "target.csv")
    write_table(torch.randn(LABELLED_ROWS, 3, generator=generator) * 1.5 + 1, folder / "labelled.csv")
    table = pd.read_csv(folder / "target.csv")
    table.to_csv(folder / "target.csv.gz", index=False)
    table.to_parquet(folder / "target.parquet", row_group_size=9)
    np.savez(folder / "target.npz", x=table[COLUMNS].to_numpy(), y=table["y"].to_numpy())
    save_file(_trained().state_dict(), folder / "weights.safetensors")
    return folder


def write_table(inputs: torch.Tensor, path: Path) -> None:
    frame = pd.DataFrame(inputs.numpy().astype(np.float64), columns=COLUMNS)
    frame["y"] = frame["a"] - 2 * frame["b"] + frame["c"] ** 2
    frame.to_csv(path, index=False)


def library_model() -> torch.nn.Module:
    """Return the workspace's model, loaded without the command line."""
    model = _trained()
    return model.eval()


def extract_inputs(path: Path) -> torch.Tensor:
    return torch.tensor(pd.read_csv(path)[COLUMNS].to_numpy(np.float32))


def labels_of(path: Path) -> np.ndarray:
    return pd.read_csv(path)["y"].to_numpy()


def forget_module() -> None:
    sys.modules.pop("mymodel", None)


def _trained() -> torch.nn.Module:
    namespace: dict[str, object] = {}
    exec(MODULE, namespace)
    model = namespace["make"]()  # type: ignore[operator]
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        model[1].running_var.mul_(1.3)
    return model
