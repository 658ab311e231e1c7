"""Table of every file reader in regtta, each with a small valid file of its kind, for attacks and fuzzers."""

import gzip
import io
import json
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from safetensors.torch import save

from regtta.cli.data.open_data import DataOptions, open_data
from regtta.persistence.safe_read import read_bounded
from regtta.persistence.safetensors_files import load_weights
from regtta.report.recorder import ADAPTATION
from regtta.report.run_kinds import read_record
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics
from regtta_bench.data.archives import iter_entries
from regtta_bench.data.biwi import MAX_POSE_BYTES, _parse_rotation, read_genders
from regtta_bench.data.california import california
from regtta_bench.data.cifar10c import _open_array
from regtta_bench.data.digit_images import _read_svhn_part, read_idx
from regtta_bench.data.torchvision_sets import read_batch, svhn
from regtta_bench.data.utkface import FaceFiles
from regtta_bench.demo.demo_page import _KEYS, RESULTS
from regtta_bench.demo.demo_page import _read as read_results
from regtta_bench.sweep.source_models import _load_weights
from regtta_bench.sweep.store import RunStore, compute_key
from regtta_bench.tables.rendering import CSV_COLUMNS
from regtta_bench.tables.reproduction_page import _read_origin
from regtta_bench.tables.reproduction_page import _read_table as read_table
from regtta_bench.training.loop import TrainingCheckpoint, TrainingState
from security.hostile_states import make_checkpoint_file, resume_and_step

MAX_MEMBER_BYTES = 2**20


@dataclass(frozen=True)
class Reader:
    """Reader of files that a user passes in.

    Attributes:
        kind: kind of file, as in the table of docs/faults.md.
        file: path of the file, relative to a folder.
        read: reads the file completely.
        make_valid: makes a small valid file.
        undetectable: damages that leave a valid file, which no reader can detect.
    """

    kind: str
    file: str
    read: Callable[[Path], object]
    make_valid: Callable[[], bytes]
    undetectable: tuple[str, ...] = ()


def _linear() -> torch.nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Linear(3, 2)


def _saved(content: object, *, zipped: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def _trained() -> TrainingState:
    model = _linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TrainingState((model,), optimizer, torch.Generator(), torch.device("cpu"))


def _resume(path: Path) -> int:
    drawn = torch.get_rng_state()
    try:
        return TrainingCheckpoint(path).resume(_trained())
    finally:
        torch.set_rng_state(drawn)


def _statistics() -> bytes:
    features = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    source = SourceStatistics.from_moments(Moments.from_features(features), head="fc", fingerprint="f" * 64)
    about = {"format": 1, "regtta": "0.1.0", "count": 9, "head": "fc", "fingerprint": "f" * 64}
    names = ("mean", "variances", "basis", "feature_variances")
    return save({name: getattr(source, name) for name in names}, {"regtta.statistics": json.dumps(about)})


def _frame() -> pd.DataFrame:
    return pd.DataFrame(np.arange(24.0).reshape(8, 3), columns=["a", "b", "y"])


def _parquet() -> bytes:
    return _frame().to_parquet()


def _csv() -> bytes:
    return _frame().to_csv(index=False).encode()


def _zipped(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros((4, 2, 2, 3), dtype=np.uint8))
    return file.getvalue()


def _idx() -> bytes:
    return (2051).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (2, 28, 28)) + bytes(2 * 28 * 28)


def _picture(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("faces_0/01/frame_00003_rgb.png", "é" * 120):
            member = tarfile.TarInfo(name)
            member.size = 700
            archive.addfile(member, io.BytesIO(b"x" * 700))
    return file.getvalue().rstrip(b"\0") + bytes(-len(file.getvalue().rstrip(b"\0")) % 512 + 1024)


def _batch() -> bytes:
    data = np.arange(2 * 3072, dtype=np.uint64).astype(np.uint8).reshape(2, 3072)
    return pickle.dumps({"data": data, "labels": [3, 9], "filenames": ["a.png", "b.png"]}, protocol=3)


def _california() -> bytes:
    rows = [f"{i},{i * i},{i % 7}.5,{('INLAND', 'NEAR BAY')[i % 2]}" for i in range(40)]
    return "\n".join(["longitude,rooms,median_house_value,ocean_proximity", *rows, ""]).encode()


def _runs() -> bytes:
    lines = [
        {"key": compute_key({"seed": seed}), "specification": {"seed": seed}, "result": {"r2": 0.5}}
        for seed in range(3)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _reproduced() -> bytes:
    return (",".join(CSV_COLUMNS) + "\n" + ",".join("0" for _ in CSV_COLUMNS) + "\n").encode()


def _demo() -> bytes:
    return json.dumps({key: [] for key in sorted(_KEYS[RESULTS])}).encode()


def _table(path: Path) -> object:
    data = open_data(DataOptions(str(path), target="y"), batch_size=1024)
    return sum(len(batch.inputs) for batch in data.batches())


def _source(path: Path) -> None:
    _load_weights({"model": _linear()}, path)


def _pose(path: Path) -> object:
    return _parse_rotation(str(path), read_bounded(path, MAX_POSE_BYTES))


def _unpack(path: Path) -> list[bytes]:
    return [entry.read(MAX_MEMBER_BYTES) for entry in iter_entries(path)]


def _face(path: Path) -> object:
    return FaceFiles((path,), (1,), ()).read()


READERS: dict[str, Reader] = {
    "weights": Reader("safetensors", "w.safetensors", load_weights, lambda: save(dict(_linear().state_dict()))),
    "statistics": Reader("safetensors", "s.safetensors", SourceStatistics.load, _statistics),
    "stream": Reader("saved state", "stream.safetensors", resume_and_step, make_checkpoint_file),
    "source-model": Reader(
        "safetensors",
        "m.safetensors",
        _source,
        lambda: save({f"model/{key}": value for key, value in _linear().state_dict().items()}),
    ),
    "torch-weights": Reader("torch.save", "w.pt", load_weights, lambda: _saved(_linear().state_dict())),
    "torch-old": Reader("torch.save", "old.pth", load_weights, lambda: _saved(_linear().state_dict(), zipped=False)),
    "checkpoint": Reader(
        "torch.save", "c.pt", _resume, lambda: _saved({"epochs": 2, "trained": _trained().state_dict()})
    ),
    "csv": Reader("CSV", "t.csv", _table, _csv, ("cut in half",)),
    "csv-gz": Reader("CSV", "t.csv.gz", _table, lambda: gzip.compress(_csv())),
    "california": Reader(
        "CSV",
        "california_housing/housing.csv",
        lambda path: california(path.parent.parent, seed=0),
        _california,
        ("cut in half",),
    ),
    "reproduced": Reader("CSV", "table.csv", read_table, _reproduced),
    "parquet": Reader("Parquet", "t.parquet", _table, _parquet),
    "npz": Reader("NumPy", "d.npz", _table, lambda: _zipped(x=np.ones((5, 2)), y=np.arange(5.0))),
    "svhn-subset": Reader(
        "NumPy",
        "svhn/x.npz",
        lambda path: _read_svhn_part(path.parent.parent, "svhn/x.npz"),
        lambda: _zipped(x=np.zeros((2, 32, 32, 3), dtype=np.uint8), y=np.arange(2)),
    ),
    "npy": Reader("NumPy", "fog.npy", lambda path: _open_array(path, (4, 2, 2, 3), ("uint8",)), _npy),
    "idx": Reader("idx", "t10k-images", lambda path: read_idx(path, 2051), _idx),
    "idx-gz": Reader("idx", "t10k-images.gz", lambda path: read_idx(path, 2051), lambda: gzip.compress(_idx())),
    "png": Reader("picture", "7_0.png", _face, lambda: _picture("PNG")),
    "jpeg": Reader("picture", "7_0.jpg", _face, lambda: _picture("JPEG")),
    "tar": Reader("tar", "a.tar", _unpack, _tar),
    "tgz": Reader("tar", "a.tgz", _unpack, lambda: gzip.compress(_tar())),
    "cifar-batch": Reader("pickled batch", "test_batch", read_batch, _batch),
    "svhn": Reader("mat", "svhn/test_32x32.mat", lambda path: svhn(path.parent.parent, "test"), lambda: b"MATLAB 5.0"),
    "genders": Reader(
        "JSON", "genders.json", lambda path: read_genders(path, ["01"]), lambda: b'{"01": "female", "02": "male"}'
    ),
    "record": Reader("JSON", "run.json", read_record, lambda: json.dumps({"format": ADAPTATION, "a": [1]}).encode()),
    "results": Reader("JSON", RESULTS, read_results, _demo),
    "runs": Reader("JSON", "runs.jsonl", lambda path: list(RunStore(path)), _runs, ("empty", "cut in half")),
    "pose": Reader("text", "frame_00003_pose.txt", _pose, lambda: b"1 0 0\n0 1 0\n0 0 1\n\n1 2 3\n"),
    "markdown": Reader(
        "text",
        "table.md",
        lambda path: _read_origin(path.with_suffix(".csv")),
        lambda: b"Made by `regtta reproduce x` from 7 runs on cpu (torch 2), one line each",
        ("empty", "cut in half", "noise", "text", "a pickle that runs a command", "a folder"),
    ),
}
