"""Table of all hand-made attacks on readers, :data:`ATTACKS`. Each must end in a clear error."""

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from security import dataset_attacks, model_attacks
from security import file_builders as m
from security.readers import READERS


@dataclass(frozen=True)
class Attack:
    """Invalid file for one reader.

    Attributes:
        reader: name in the table of readers.
        name: description of the defect.
        make: makes the content of the file.
        is_oversized: the file declares or unpacks to sizes that exhaust memory, so that memory is measured.
    """

    reader: str
    name: str
    make: Callable[[], m.Content]
    is_oversized: bool = False

    @property
    def title(self) -> str:
        return f"{self.reader}: {self.name}"


def _common_attacks() -> list[Attack]:
    """Return the attacks that every reader is tested with."""
    attacks = []
    for name, reader in READERS.items():
        valid = reader.make_valid()
        contents = {
            "empty": b"",
            "cut in half": valid[: len(valid) // 2],
            "noise": m.noise(),
            "text": b"not what was asked for\n",
            "a pickle that runs a command": pickle.dumps(m.Payload()),
        }
        attacks += [
            Attack(name, kind, lambda raw=raw: raw) for kind, raw in contents.items() if kind not in reader.undetectable
        ]
    return attacks


_SPECIFIC: dict[str, dict[str, Callable[[], m.Content]]] = {
    "weights": model_attacks.SAFETENSORS,
    "statistics": model_attacks.STATISTICS,
    "stream": model_attacks.STREAM,
    "source-model": {"weights of another model": READERS["weights"].make_valid},
    "torch-weights": model_attacks.TORCH,
    "torch-old": model_attacks.TORCH_OLD,
    "checkpoint": {name: make for name, make in model_attacks.TORCH.items() if name != "numbers as names"},
    "csv": model_attacks.CSV,
    "csv-gz": model_attacks.CSV_GZ,
    "california": model_attacks.CALIFORNIA,
    "reproduced": model_attacks.REPRODUCED,
    "parquet": model_attacks.PARQUET,
    "npz": model_attacks.NPZ,
    "svhn-subset": model_attacks.SUBSET,
    "npy": model_attacks.NPY,
    "idx": dataset_attacks.IDX,
    "idx-gz": dataset_attacks.IDX_GZ,
    "png": dataset_attacks.PNG,
    "jpeg": dataset_attacks.JPEG,
    "tar": dataset_attacks.TAR,
    "tgz": dataset_attacks.TGZ,
    "cifar-batch": dataset_attacks.BATCH,
    "svhn": dataset_attacks.MAT,
    "genders": dataset_attacks.JSON | dataset_attacks.GENDERS,
    "record": dataset_attacks.JSON | dataset_attacks.RECORD,
    "results": dataset_attacks.JSON,
    "runs": {name: make for name, make in dataset_attacks.JSON.items() if name != "half"} | dataset_attacks.RUNS,
    "pose": dataset_attacks.POSE,
    "markdown": dataset_attacks.MARKDOWN,
}
_OVERSIZED_WORDS = ("GB", "MB", "2^", "10^", "million", "bomb", "overflow", "by 6", "by 1", "wide", "101,000", "quote")

ATTACKS: tuple[Attack, ...] = (
    *_common_attacks(),
    *(
        Attack(reader, name, make, is_oversized=any(word in name for word in _OVERSIZED_WORDS))
        for reader, special in _SPECIFIC.items()
        for name, make in special.items()
    ),
)


def count_attacks() -> Counter[str]:
    """Return the number of attacks on each kind of file."""
    return Counter(READERS[attack.reader].kind for attack in ATTACKS)
