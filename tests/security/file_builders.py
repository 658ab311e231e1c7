"""Builders of hostile files, byte by byte where no library would write them."""

import gzip
import io
import json
import os
import pickle
import random
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save

from regtta.persistence.state_files import _digest
from regtta.statistics.source_files import STATISTICS_FORMAT_VERSION

MIB = 2**20


@dataclass(frozen=True)
class LargeContent:
    """Content of a file that is larger than it is worth to hold in memory.

    Attributes:
        start: first bytes.
        piece: bytes repeated after them. Zeros take no space on the disk.
        times: number of repetitions.
    """

    start: bytes
    piece: bytes
    times: int

    def write(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(self.start)
            if any(self.piece):
                for _ in range(self.times):
                    file.write(self.piece)
            else:
                file.truncate(len(self.start) + len(self.piece) * self.times)


Content = bytes | LargeContent


class Payload:
    """Touches the file ``canary`` in the working directory when its pickle is loaded."""

    def __reduce__(self):
        return (os.system, ("touch canary",))


def gzip_bomb(gib: int = 2, piece: bytes = bytes(16 * MIB), start: bytes = b"") -> bytes:
    """Compress many GiB to a few MB: the same gzip member repeated, which is a valid gzip file."""
    return gzip.compress(start) + gzip.compress(piece) * (gib * 2**30 // len(piece))


def zlib_zeros(mib: int) -> bytes:
    """Compress many MiB of zeros, one MiB of them in fact: the compressed block is repeated."""
    packer, piece, checksum = zlib.compressobj(1), bytes(MIB), 1
    blocks = [packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)]
    for _ in range(mib):
        checksum = zlib.adler32(piece, checksum)
    return blocks[0] + blocks[1] * (mib - 1) + b"\x03\x00" + checksum.to_bytes(4, "big")


def safetensors(header: object, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def tensor(shape: list[int], end: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def statistics(about: object, width: int = 2, **tensors: torch.Tensor) -> bytes:
    complete = {
        "mean": torch.zeros(width, dtype=torch.float64),
        "variances": torch.ones(width, dtype=torch.float64),
        "basis": torch.eye(width, dtype=torch.float64),
        "feature_variances": torch.ones(width, dtype=torch.float64),
    }
    text = about if isinstance(about, str) else json.dumps({**ABOUT, **about})
    return save(complete | tensors, {"regtta.statistics": text})


def state(text: str, about: object = None, **tensors: torch.Tensor) -> bytes:
    """Build a state file with a valid digest around any content."""
    metadata = {"format": 1, "regtta": "0", "digest": _digest(text, tensors), "state": text}
    return save(tensors, {"regtta.state": about if isinstance(about, str) else json.dumps(metadata | (about or {}))})


ABOUT = {"format": STATISTICS_FORMAT_VERSION, "regtta": "0", "count": 9, "head": "fc", "fingerprint": "0"}


def torch_saved(content: object, *, zipped: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def deflated(archive: bytes) -> bytes:
    """Compress the members of a zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return file.getvalue()


def torch_archive_with_pickle(raw: bytes) -> bytes:
    """Build an archive of ``torch.save`` with its pickle replaced."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(torch_saved({}))) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, raw if name.endswith("data.pkl") else old.read(name))
    return file.getvalue()


def npy(shape: object, dtype: str = "<f8", data: bytes = b"", header: bytes | None = None) -> bytes:
    text = header or repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(f"{name}.npy", raw)
    return file.getvalue()


def zip_of(name: str, packed: bytes, size: int, *, method: int = 8, claimed: int | None = None) -> bytes:
    """Build an archive of one member with the given sizes; the checksum is never reached."""
    raw_name = name.encode()
    packed_size = len(packed) if claimed is None else claimed
    sizes = struct.pack("<HHHIIIHH", method, 0, 33, 0, packed_size, size, len(raw_name), 0)
    local = b"PK\x03\x04" + struct.pack("<HH", 20, 0) + sizes + raw_name + packed
    central = b"PK\x01\x02" + struct.pack("<HHH", 20, 20, 0) + sizes + struct.pack("<HHHII", 0, 0, 0, 0, 0) + raw_name
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def npz_bomb(gib: int = 3) -> bytes:
    """Build an array of zeros as NumPy would write it, 1,000 times as large as its file."""
    count = gib * 2**30 // 8
    start = npy((count, 1))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(16 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = first + piece * (gib * 64) + packer.flush()
    return zip_of("x.npy", packed, len(start) + count * 8)


def idx(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    return bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + data


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, height: int, *between: bytes, pixels: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(between) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def jpeg_of_claimed_size(width: int, height: int, valid: bytes) -> bytes:
    """Change the size in the frame header of a JPEG."""
    place = valid.index(b"\xff\xc0") + 5
    return valid[:place] + struct.pack(">HH", height, width) + valid[place + 4 :]


def member(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, **fields: object) -> bytes:
    """Build one member of a tar archive with the given header fields, which need not be true."""
    info = tarfile.TarInfo(name)
    info.size, info.type = len(content), kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def with_size(header: bytes, field: bytes) -> bytes:
    """Replace the size field of a member, with a valid checksum."""
    raw = bytearray(header)
    raw[124:136] = field.ljust(12, b"\0")
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    return bytes(raw)


END = bytes(1024)


def parquet(table: pa.Table, **options: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def repeated_text() -> bytes:
    """Store one text of a megabyte once and refer to it from 8,192 rows: 8 GB as a column."""
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(8192, dtype=np.int32)), pa.array(["x" * MIB]))
    return parquet(pa.table({"a": words, "y": np.zeros(8192)}))


def deep_parquet(depth: int) -> bytes:
    kind: pa.DataType = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return parquet(pa.table({"a": pa.array([], type=kind), "y": pa.array([], type=pa.float64())}))


def pickled(content: object, protocol: int = 2) -> bytes:
    return pickle.dumps(content, protocol=protocol)


def noise() -> bytes:
    return random.Random(0).randbytes(5000)


def nested(depth: int = 100_000, start: bytes = b"") -> bytes:
    return start + b"[" * depth + b"]" * depth


def write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content.write(path)
