"""Attacks on weights, statistics and states, and on tables and arrays, by name."""

import bz2
import pickle

import pyarrow as pa
import torch

from regtta_bench.tables.rendering import CSV_COLUMNS
from security import file_builders as m
from security.readers import READERS

MIB = m.MIB

_ONE = {"a": m.tensor([1], 4)}
SAFETENSORS = {
    "header of 2^60 bytes": lambda: (2**60).to_bytes(8, "little") + b"{}",
    "header of 2^64 - 1 bytes": lambda: b"\xff" * 8 + b"{}",
    "30 MB of blanks as the header": lambda: m.safetensors(b"{" + b" " * 30 * MIB + b"}"),
    "data of 2^60 bytes": lambda: m.safetensors({"a": m.tensor([2**58], 2**60)}),
    "shape that overflows": lambda: m.safetensors({"a": m.tensor([2**40, 2**40], 4)}, bytes(4)),
    "shape whose product is 0 modulo 2^64": lambda: m.safetensors({"a": m.tensor([2**32, 2**32], 0)}),
    "shape below zero": lambda: m.safetensors({"a": m.tensor([-1], 4)}, bytes(4)),
    "tensors that overlap": lambda: m.safetensors({**_ONE, "b": m.tensor([1], 4)}, bytes(4)),
    "offsets the wrong way round": lambda: m.safetensors({"a": {**_ONE["a"], "data_offsets": [4, 0]}}, bytes(4)),
    "offsets that are infinite": lambda: m.safetensors(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1e999]}}'),
    "unknown type": lambda: m.safetensors({"a": m.tensor([1], 4, "X99")}, bytes(4)),
    "nested header": lambda: m.safetensors(m.nested(start=b'{"a":')),
    "number of 5,000 digits": lambda: m.safetensors(b'{"a":' + b"9" * 5000 + b"}"),
    "header that is no UTF-8": lambda: m.safetensors(b'{"\xff\xfe":1}'),
    "metadata that is no text": lambda: m.safetensors({"__metadata__": {"a": [1]}, **_ONE}, bytes(4)),
    "bytes after the data": lambda: m.safetensors(_ONE, bytes(9)),
}
STATISTICS = {
    "no statistics but weights": READERS["weights"].make_valid,
    "metadata nested": lambda: m.statistics(m.nested().decode()),
    "metadata a list": lambda: m.statistics("[]"),
    "metadata with NaN": lambda: m.statistics('{"format": NaN}'),
    "metadata with a key twice": lambda: m.statistics('{"format": 1, "format": 1}'),
    "format that is infinite": lambda: m.statistics('{"format": 1e999}'),
    "format of 5,000 digits": lambda: m.statistics('{"format": ' + "9" * 5000 + "}"),
    "newer format": lambda: m.statistics({"format": 99}),
    "count that is a text": lambda: m.statistics({"count": "many"}),
    "count that is none": lambda: m.statistics({"count": None}),
    "count of one": lambda: m.statistics({"count": 1}),
    "fewer samples than directions": lambda: m.statistics({"count": 2}),
    "head that is a number": lambda: m.statistics({"head": 3}),
    "negative variances": lambda: m.statistics({}, variances=torch.tensor([1.0, -1.0], dtype=torch.float64)),
    "rising variances": lambda: m.statistics({}, variances=torch.tensor([1.0, 2.0], dtype=torch.float64)),
    "no variance at all": lambda: m.statistics(
        {}, variances=torch.zeros(2, dtype=torch.float64), feature_variances=torch.zeros(2, dtype=torch.float64)
    ),
    "basis that is not orthonormal": lambda: m.statistics({}, basis=torch.ones(2, 2, dtype=torch.float64)),
    "variances of other features": lambda: m.statistics({}, feature_variances=torch.full((2,), 3.0).double()),
    "count below one": lambda: m.statistics({"count": -5}),
    "mean that is not finite": lambda: m.statistics({}, mean=torch.tensor([0.0, torch.nan], dtype=torch.float64)),
    "mean of another type": lambda: m.statistics({}, mean=torch.zeros(2)),
    "basis of another shape": lambda: m.statistics({}, basis=torch.zeros(3, 2, dtype=torch.float64)),
    "nothing in it": lambda: m.statistics({}, width=0),
}
STREAM = {
    "statistics in its place": READERS["statistics"].make_valid,
    "metadata nested": lambda: m.state("1", m.nested().decode()),
    "metadata a list": lambda: m.state("1", "[]"),
    "format that is infinite": lambda: m.state("1", '{"format": 1e999, "state": "1"}'),
    "format of 5,000 digits": lambda: m.state("1", '{"format": ' + "9" * 5000 + ', "state": "1"}'),
    "newer format": lambda: m.state("1", {"format": 99}),
    "another digest": lambda: m.state("1", {"digest": "0" * 64}),
    "state that is a number": lambda: m.state("1"),
    "state that is a list": lambda: m.state("[1, 2]"),
    "state nested": lambda: m.state(m.nested(10_000).decode()),
    "state with NaN": lambda: m.state("NaN"),
    "state of 5,000 digits": lambda: m.state("9" * 5000),
    "tensor that is not there": lambda: m.state('{"tensor": "absent"}'),
    "tensor of a type that is none": lambda: m.state('{"tensor": "t", "dtype": "load"}', t=torch.zeros(2).byte()),
    "tensor of 2^40 numbers": lambda: m.state(
        '{"tensor": "t", "dtype": "uint16", "shape": [1099511627776]}', t=torch.zeros(2).byte()
    ),
    "key that is a list": lambda: m.state('{"dict": [[[1], 2]]}'),
    "counts alone": lambda: m.state('{"dict": [["batches", 3]]}'),
    "no count": lambda: m.state('{"dict": [["batches", -1], ["adapter", 1]]}'),
    "adapter that is a text": lambda: m.state('{"dict": [["batches", 3], ["adapter", "x"]]}'),
}
TORCH = {
    "objects of torch.save": lambda: m.torch_saved({"w": m.Payload()}),
    "objects of the old torch.save": lambda: m.torch_saved({"w": m.Payload()}, zipped=False),
    "pickle that runs a command in an archive": lambda: m.torch_archive_with_pickle(pickle.dumps(m.Payload())),
    "compressed archive": lambda: m.deflated(m.torch_saved({"w": torch.zeros(16 * MIB)})),
    "member of 3 GiB that is not there": lambda: m.zip_of("archive/data.pkl", b"", 3 * 2**30, method=0),
    "bytearray of 2^40": lambda: m.torch_archive_with_pickle(
        b"\x80\x02cbuiltins\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R."
    ),
    "nested pickle": lambda: m.torch_archive_with_pickle(b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."),
    "list": lambda: m.torch_saved([1, 2]),
    "numbers as names": lambda: m.torch_saved({1: torch.zeros(1)}),
    "zip without anything": lambda: b"PK\x05\x06" + bytes(18),
}
TORCH_OLD = {
    "storage of 2^40 numbers": lambda: READERS["torch-old"].make_valid().replace(b"K\x06N", b"\x8a\x06\0\0\0\0\0\x01N"),
    "bytearray of 2^40": lambda: READERS["torch-old"].make_valid()[:100] + b"cbuiltins\nbytearray\n",
}
CSV = {
    "line of 300 MB": lambda: m.LargeContent(b"a,y\n", b"1" * MIB, 300),
    "million columns": lambda: b",".join(b"c%d" % i for i in range(1_000_000)) + b"\n" + b"1," * 999_999 + b"1\n",
    "row of 20 million cells": lambda: b"a,y\n1,2\n" + b"1," * 20_000_000 + b"1\n",
    "quote that never ends": lambda: m.LargeContent(b'a,y\n1,"', b"line\n" * MIB, 60),
    "no UTF-8": lambda: b"a,y\n\xff\xfe,1\n",
    "zero bytes": lambda: b"a,y\n\0,1\n",
    "word for a number": lambda: b"a,y\n1,2\nOslo,3\n",
    "column missing": lambda: b"a,b\n1,2\n",
    "no header": lambda: b"1,2\n3,4\n",
    "other separator": lambda: b"a;y\n1;2\n",
}
CSV_GZ = {
    "bomb of 2 GB": m.gzip_bomb,
    "bomb of 1 GB of rows": lambda: m.gzip_bomb(1, piece=(b"0." + b"0" * 124 + b",0\n") * (MIB // 8), start=b"a,y\n"),
    "cut in the last bytes": lambda: READERS["csv-gz"].make_valid()[:-4],
    "wrong checksum": lambda: READERS["csv-gz"].make_valid()[:-8] + b"\0\0\0\0" + READERS["csv-gz"].make_valid()[-4:],
    "bzip2 instead": lambda: bz2.compress(b"a,y\n1,2\n"),
}
_LINE = b"longitude,rooms,median_house_value,ocean_proximity\n"
CALIFORNIA = {
    "20 MB": lambda: _LINE + b"1,2,3,INLAND\n" * (2 * MIB),
    "million columns": lambda: b"a," * 1_000_000 + b"\n",
    "long row": lambda: _LINE + b"1,2,3,INLAND" + b",1" * 1000 + b"\n",
    "rows longer than the header": lambda: _LINE + b"1,2,3,4,INLAND\n2,3,4,5,NEAR BAY\n" * 4,
    "words": lambda: _LINE + b"x,2,3,INLAND\n1,2,3,NEAR BAY\n",
    "no target": lambda: _LINE + b"1,2,3,INLAND\n" * 9,
    "no UTF-8": lambda: _LINE + b"1,2,3,\xff\xfe\n",
}
REPRODUCED = {
    "70 MB": lambda: m.LargeContent(b"", b"a," * MIB, 35),
    "cell of a megabyte": lambda: READERS["reproduced"].make_valid() + b"x" * MIB,
    "no UTF-8": lambda: READERS["reproduced"].make_valid() + b"\xff",
    "words for numbers": (",".join(CSV_COLUMNS) + "\n" + ",".join("x" for _ in CSV_COLUMNS) + "\n").encode,
    "other columns": lambda: b"a,b\n1,2\n",
    "zero byte": lambda: READERS["reproduced"].make_valid() + b"\0\n",
}
PARQUET = {
    "text of 8 GB, stored once": m.repeated_text,
    "lists in lists": lambda: m.deep_parquet(50),
    "lists in lists, 500 deep": lambda: m.deep_parquet(500),
    "101,000 columns": lambda: m.parquet(
        pa.table([pa.array([1])] * 101_000, names=[f"c{i}" for i in range(100_999)] + ["y"]),
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    ),
    "two columns of one name": lambda: m.parquet(pa.table([pa.array([1.0])] * 3, names=["a", "a", "y"])),
    "dates": lambda: m.parquet(pa.table({"a": pa.array([1], pa.timestamp("s")), "y": [1.0]})),
    "footer of 2 GB": lambda: READERS["parquet"].make_valid()[:-8] + b"\xff\xff\xff\x7fPAR1",
    "footer of zeros": lambda: b"PAR1" + bytes(100) + (100).to_bytes(4, "little") + b"PAR1",
    "pandas' remarks are a list": lambda: m.parquet(
        pa.table({"a": [1.0], "y": [1.0]}).replace_schema_metadata({"pandas": "[1]"})
    ),
    "pandas' remarks are nested": lambda: m.parquet(
        pa.table({"a": [1.0], "y": [1.0]}).replace_schema_metadata({"pandas": m.nested(20_000)})
    ),
}
_HUGE = (10**12, 1)
NPZ = {
    "bomb of 3 GB": m.npz_bomb,
    "10^12 rows": lambda: m.npz(x=m.npy(_HUGE), y=m.npy((1,), data=bytes(8))),
    "4 GB, stored, as the archive says too": lambda: m.zip_of(
        "x.npy", m.npy((499_999_984, 1)), 4 * 10**9, method=0, claimed=4 * 10**9
    ),
    "shape that overflows": lambda: m.npz(x=m.npy((2**40, 2**40))),
    "shape below zero": lambda: m.npz(x=m.npy((-4, -2), data=bytes(64))),
    "shape of words": lambda: m.npz(x=m.npy("ab")),
    "objects": lambda: m.npz(x=m.npy((1,), "|O", pickle.dumps(m.Payload()))),
    "objects inside a record": lambda: m.npz(x=m.npy((1,), "|O", pickle.dumps([m.Payload()]))),
    "code in the header": lambda: m.npz(x=m.npy((), header=b"__import__('os').system('touch canary')")),
    "nested header": lambda: m.npz(x=m.npy((), header=b"(" * 5000)),
    "bare array": lambda: m.npy((1, 1), data=bytes(8)),
    "damaged deflate": lambda: m.zip_of("x.npy", b"\xff" * 200, 300),
    "unknown packing": lambda: m.zip_of("x.npy", b"\xff" * 200, 300, method=99),
    "packed as LZMA": lambda: m.zip_of("x.npy", b"\xff" * 200, 300, method=14),
    "single number": lambda: m.npz(x=m.npy((), data=bytes(8)), y=m.npy((1,), data=bytes(8))),
    "words": lambda: m.npz(x=m.npy((1,), "<U1", data=bytes(4)), y=m.npy((1,), data=bytes(8))),
}
SUBSET = {
    "bomb of 3 GB": m.npz_bomb,
    "objects": lambda: m.npz(x=m.npy((1,), "|O", pickle.dumps(m.Payload())), y=m.npy((1,), "|i1", b"1")),
    "10^12 images": lambda: m.npz(x=m.npy((10**12, 32, 32, 3), "|u1"), y=m.npy((1,), "|i1", b"1")),
    "another shape": lambda: m.npz(x=m.npy((1, 3), "|u1", b"abc"), y=m.npy((1,), "|i1", b"1")),
    "no labels": lambda: m.npz(x=m.npy((1, 3), "|u1", b"abc")),
}
NPY = {
    "10^12 rows": lambda: m.npy((10**12, 2, 2, 3), "|u1"),
    "shape that overflows": lambda: m.npy((2**40, 2**40), "|u1"),
    "shape below zero": lambda: m.npy((-4, 2, 2, 3), "|u1", bytes(48)),
    "objects": lambda: m.npy((4, 2, 2, 3), "|O", pickle.dumps([m.Payload()])),
    "another type": lambda: m.npy((4, 2, 2, 3), "<f8", bytes(384)),
    "code in the header": lambda: m.npy((), header=b"__import__('os').system('touch canary')"),
    "nested header": lambda: m.npy((), header=b"(" * 5000),
}
