"""Attacks on data sets and on run records, by name."""

import json
import tarfile
import zlib

import numpy as np

from regtta.report.recorder import ADAPTATION
from security import file_builders as m
from security.readers import MAX_MEMBER_BYTES, READERS

MIB = m.MIB

IDX = {
    "10^9 images": lambda: m.idx((10**9, 28, 28), bytes(100)),
    "shape that overflows": lambda: m.idx((2**32 - 1, 2**32 - 1, 2**32 - 1)),
    "shape whose product is 0 modulo 2^64": lambda: m.idx((2**31, 2**31, 4)),
    "start without its zeros": lambda: b"\x08\x03",
    "half a header": lambda: m.idx((2, 28, 28))[:9],
    "labels instead": lambda: m.idx((3,), b"123"),
    "too long by a byte": lambda: READERS["idx"].make_valid() + b"0",
    "70 MB": lambda: m.LargeContent(m.idx((70, 1024, 1024)), bytes(MIB), 70),
}
IDX_GZ = {
    "bomb of 2 GB": m.gzip_bomb,
    "bomb of 2 GB with a valid start": lambda: m.gzip_bomb(start=m.idx((5_000_000, 28, 28))),
    "wrong checksum": lambda: READERS["idx-gz"].make_valid()[:-8] + bytes(8),
}
PNG = {
    "60,000 by 60,000": lambda: m.png(60_000, 60_000),
    "2^31 - 1 wide": lambda: m.png(2**31 - 1, 1),
    "10,000 by 10,000 of zeros": lambda: m.png(10_000, 10_000, pixels=m.zlib_zeros(287)),
    "no width": lambda: m.png(0, 5),
    "comment that unpacks to 500 MB": lambda: m.png(
        2, 2, m.chunk(b"zTXt", b"a\0\0" + m.zlib_zeros(500)), pixels=zlib.compress(bytes(14))
    ),
    "colours that unpack to 500 MB": lambda: m.png(
        2, 2, m.chunk(b"iCCP", b"a\0\0" + m.zlib_zeros(500)), pixels=zlib.compress(b"no pixels")
    ),
    "wrong checksum": lambda: READERS["png"].make_valid().replace(b"IDAT", b"IDAt"),
    "33 MB": lambda: READERS["png"].make_valid() + bytes(33 * MIB),
    "GIF": lambda: b"GIF89a" + bytes(100),
}
JPEG = {
    "65,500 by 65,500": lambda: m.jpeg_of_claimed_size(65_500, 65_500, READERS["jpeg"].make_valid()),
    "no height": lambda: m.jpeg_of_claimed_size(9, 0, READERS["jpeg"].make_valid()),
    "start alone": lambda: b"\xff\xd8\xff",
    "PostScript": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
}
_FINE = m.member("fine")
TAR = {
    "absolute path": lambda: m.member("/etc/passwd") + m.END,
    "path out of it": lambda: _FINE + m.member("../../x") + m.END,
    "path out of it, further on": lambda: m.member("a/b/../../../x") + m.END,
    "backslashes": lambda: m.member("..\\x") + m.END,
    "symbolic link": lambda: m.member("a", b"", tarfile.SYMTYPE, linkname="/etc/passwd") + m.END,
    "hard link": lambda: m.member("a", b"", tarfile.LNKTYPE, linkname="../x") + m.END,
    "character device": lambda: m.member("a", b"", tarfile.CHRTYPE) + m.END,
    "block device": lambda: m.member("a", b"", tarfile.BLKTYPE) + m.END,
    "named pipe": lambda: m.member("a", b"", tarfile.FIFOTYPE) + m.END,
    "member of 2^60 bytes": lambda: m.member("a", b"", size=2**60) + m.END,
    "member too long": lambda: m.member("a", bytes(MAX_MEMBER_BYTES + 1)) + m.END,
    "size below zero, which leads in circles": lambda: (
        _FINE + m.with_size(m.member("a", b""), (2**96 - 1024).to_bytes(12, "big")) + m.END
    ),
    "long name of 2^60 bytes": lambda: m.member("././@LongLink", b"", tarfile.GNUTYPE_LONGNAME, size=2**60) + m.END,
    "long name of less than nothing": lambda: (
        _FINE
        + m.with_size(m.member("././@LongLink", b"", tarfile.GNUTYPE_LONGNAME), (2**96 - 512).to_bytes(12, "big"))
        + m.END
    ),
    "20,000 long names in a row": lambda: m.member("n", b"a\0", tarfile.GNUTYPE_LONGNAME) * 20_000 + _FINE + m.END,
    "remarks of 2^60 bytes": lambda: m.member("a", b"", tarfile.XHDTYPE, size=2**60) + m.END,
    "remark of a size below zero": lambda: m.member("a", b"17 size=-1000000\n", tarfile.XHDTYPE) + _FINE + m.END,
    "remark of a path out of it": lambda: m.member("a", b"13 path=../x\n", tarfile.XHDTYPE) + _FINE + m.END,
    "sparse file of 2^40 bytes": lambda: (
        m.member(
            "a",
            b"34 GNU.sparse.realsize=1099511627776\n22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n",
            tarfile.XHDTYPE,
        )
        + m.member("b", b"1\n0\n0\n")
        + m.END
    ),
    "cut after a member": lambda: _FINE,
    "damage after a member": lambda: _FINE + b"\x01" * 512 + m.END,
    "wrong checksum": lambda: _FINE[:148] + b"0000001\0" + _FINE[156:] + m.END,
}
TGZ = {
    "bomb of 2 GB": m.gzip_bomb,
    "bomb of a member of 4 GB": lambda: m.gzip_bomb(start=m.member("a", b"", size=4 * 2**30)),
    "bomb of a remark of 4 GB": lambda: m.gzip_bomb(start=m.member("a", b"", tarfile.XHDTYPE, size=4 * 2**30)),
    "bomb of a long name of 4 GB": lambda: m.gzip_bomb(
        start=m.member("a", b"", tarfile.GNUTYPE_LONGNAME, size=4 * 2**30)
    ),
    "plain tar": READERS["tar"].make_valid,
    "cut in the last bytes": lambda: READERS["tgz"].make_valid()[:-4],
    "path out of it": lambda: zlib.compress(m.member("../x") + m.END, wbits=31),
    "symbolic link": lambda: zlib.compress(m.member("a", b"", tarfile.SYMTYPE, linkname="/x") + m.END, wbits=31),
}
_LABELS = list(range(10))
_PIXELS = np.zeros((10, 3072), dtype=np.uint8)
BATCH = {
    "command in place of the pixels": lambda: m.pickled({"data": m.Payload(), "labels": _LABELS}),
    "command in place of the labels": lambda: m.pickled({"data": _PIXELS, "labels": m.Payload()}, 4),
    "command in a key": lambda: m.pickled({"data": _PIXELS, "labels": _LABELS, "x": [m.Payload()]}, 3)[:-9],
    "command by the old instructions": lambda: b"(S'touch canary'\nios\nsystem\n.",
    "import of a module": lambda: b"\x80\x02cantigravity\nfly\n.",
    "fewer labels": lambda: m.pickled({"data": _PIXELS, "labels": _LABELS[:-1]}, 3),
    "label of another class": lambda: m.pickled({"data": _PIXELS, "labels": [*_LABELS[:-1], 10]}, 3),
    "pixels of another type": lambda: m.pickled({"data": _PIXELS.astype(float), "labels": _LABELS}, 3),
    "pixels in another shape": lambda: m.pickled({"data": _PIXELS.reshape(3072, 10), "labels": _LABELS}, 3),
    "pixels laid out by columns": lambda: m.pickled({"data": np.asfortranarray(_PIXELS), "labels": _LABELS}, 3),
    "memory cell 2^32 - 1": lambda: b"\x80\x02}r\xff\xff\xff\xff.",
    "text of 2^31 bytes": lambda: b"\x80\x02T\xff\xff\xff\x7fabc.",
    "bytes of 2^62": lambda: b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"abc.",
    "65 MB": lambda: b"\x80\x02" + b"N" * 65 * MIB,
    "2 million instructions": lambda: b"\x80\x02" + b"N" * 2_000_000 + b".",
    "dict in itself": lambda: b"\x80\x02}q\0(U\x06labelsh\0U\x04datah\0u.",
    "stack that is empty": lambda: b"\x80\x02R.",
}
MAT = {
    "MATLAB's header and noise": lambda: b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM" + m.noise(),
    "element of 4 GB": lambda: b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM" + b"\x0f\0\0\0\xff\xff\xff\xff",
}
JSON = {
    "nested": m.nested,
    "nested objects": lambda: b'{"a":' * 100_000,
    "NaN": lambda: b'{"format": NaN}\n{}\n',
    "infinity": lambda: b'{"01": -Infinity}\n{}\n',
    "key twice": lambda: b'{"01": "female", "01": "male"}\n{}\n',
    "number of 5,000 digits": lambda: b'{"01": ' + b"9" * 5000 + b"}\n{}\n",
    "no UTF-8": lambda: b'{"01": "\xff\xfe"}',
    "list": lambda: b"[1, 2]\n",
    "number": lambda: b"7\n",
    "null": lambda: b"null\n",
    "half": lambda: b'{"01": "fem',
    "comma too many": lambda: b'{"01": "female",}\n',
}
GENDERS = {
    "70 KB": lambda: b'{"01": "female"' + b" " * 70_000 + b"}",
    "lists for genders": lambda: b'{"01": ["female"]}',
    "folder missing": lambda: b'{"02": "male"}',
}
RECORD = {
    "another format": lambda: json.dumps({"format": "regtta.adaptation/99"}).encode(),
    "list for the format": lambda: json.dumps({"format": [ADAPTATION]}).encode(),
    "300 MB": lambda: m.LargeContent(b'{"format": "', bytes(MIB), 300),
}
RUNS = {
    "notes of the user's": lambda: b"buy milk",
    "key that is a list": lambda: b'{"key": [], "specification": {}, "result": {}}\n',
    "specification that is a number": lambda: b'{"key": "a", "specification": 1, "result": {}}\n',
    "300 MB": lambda: m.LargeContent(b'{"key": "', bytes(MIB), 300),
}
POSE = {
    "nothing but words": lambda: b"a b c\nd e f\ng h i\n",
    "rows of one": lambda: b"1\n1\n1\n",
    "rows that differ": lambda: b"1 0 0\n0 1\n0 0 1\n",
    "no rotation": lambda: b"1 2 3\n4 5 6\n7 8 9\n",
    "NaN": lambda: b"nan 0 0\n0 1 0\n0 0 1\n",
    "number of 5,000 digits": lambda: b"9" * 5000 + b" 0 0\n0 1 0\n0 0 1\n",
    "70 KB": lambda: b"1 " * 35_000,
    "no ASCII": "１ 0 0\n0 1 0\n0 0 1\n".encode,
}
MARKDOWN = {"70 MB": lambda: b"Made by `x` from (" * (4 * MIB)}
