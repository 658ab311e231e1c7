"""Every hand-made attack on a reader, in one table: :data:`ATTACKS`. Each must end in a clear error."""

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from security import making as m
from security import on_data_sets, on_models
from security.readers import READERS

MIB = m.MIB


@dataclass(frozen=True)
class Attack:
    """A file that is not right, for one reader.

    Attributes:
        reader: its name in the table of readers.
        name: what is wrong.
        make: the file.
        absurd: whether it would take a lot of memory where it is believed, so that memory is measured.
    """

    reader: str
    name: str
    make: Callable[[], bytes]
    absurd: bool = False

    @property
    def called(self) -> str:
        return f"{self.reader}: {self.name}"


def _everywhere() -> list[Attack]:
    """What every reader is given."""
    made = []
    for name, reader in READERS.items():
        whole = reader.whole()
        every = {
            "empty": b"",
            "cut in half": whole[: len(whole) // 2],
            "noise": m.noise(),
            "text": b"not what was asked for\n",
            "a pickle that runs a command": pickle.dumps(m.Payload()),
        }
        made += [Attack(name, kind, lambda raw=raw: raw) for kind, raw in every.items() if kind not in reader.forgives]
    return made


_SPECIAL: dict[str, dict[str, Callable[[], bytes]]] = {
    "weights": on_models.SAFETENSORS,
    "statistics": on_models.STATISTICS,
    "stream": on_models.STREAM,
    "source-model": {"weights of another model": READERS["weights"].whole},
    "torch-weights": on_models.TORCH,
    "torch-old": on_models.TORCH_OLD,
    "checkpoint": {name: make for name, make in on_models.TORCH.items() if name != "numbers as names"},
    "csv": on_models.CSV,
    "csv-gz": on_models.CSV_GZ,
    "california": on_models.CALIFORNIA,
    "reproduced": on_models.REPRODUCED,
    "parquet": on_models.PARQUET,
    "npz": on_models.NPZ,
    "svhn-subset": on_models.SUBSET,
    "npy": on_models.NPY,
    "idx": on_data_sets.IDX,
    "idx-gz": on_data_sets.IDX_GZ,
    "png": on_data_sets.PNG,
    "jpeg": on_data_sets.JPEG,
    "tar": on_data_sets.TAR,
    "tgz": on_data_sets.TGZ,
    "cifar-batch": on_data_sets.BATCH,
    "svhn": on_data_sets.MAT,
    "genders": on_data_sets.JSON | on_data_sets.GENDERS,
    "record": on_data_sets.JSON | on_data_sets.RECORD,
    "results": on_data_sets.JSON,
    "runs": {name: make for name, make in on_data_sets.JSON.items() if name != "half"} | on_data_sets.RUNS,
    "pose": on_data_sets.POSE,
    "markdown": on_data_sets.MARKDOWN,
}
_ABSURD = ("GB", "MB", "2^", "10^", "million", "bomb", "overflow", "by 6", "by 1", "wide", "101,000", "quote")

ATTACKS: tuple[Attack, ...] = (
    *_everywhere(),
    *(
        Attack(reader, name, make, absurd=any(word in name for word in _ABSURD))
        for reader, special in _SPECIAL.items()
        for name, make in special.items()
    ),
)


def injected() -> Counter[str]:
    """How many attacks there are on each kind of file."""
    return Counter(READERS[attack.reader].kind for attack in ATTACKS)
