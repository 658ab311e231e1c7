"""Mutations of a file, for hypothesis and atheris: flipped, inserted, overwritten and deleted bytes."""

from hypothesis import strategies as st

# Bytes with a meaning in many formats: zeros, ones, the sign bit, delimiters and separators.
SPECIAL_BYTES = (b"\x00", b"\xff", b"\x80", b"\x7f", b"[", b'"', b",", b"\n", b"-", b"9" * 20, b"\xff" * 8)


def flip_bit(raw: bytes, place: int, bit: int) -> bytes:
    at = place % max(1, len(raw))
    return raw[:at] + bytes(byte ^ (1 << bit % 8) for byte in raw[at : at + 1]) + raw[at + 1 :]


def insert_bytes(raw: bytes, place: int, more: bytes) -> bytes:
    at = place % (len(raw) + 1)
    return raw[:at] + more + raw[at:]


def overwrite_bytes(raw: bytes, place: int, more: bytes) -> bytes:
    at = place % (len(raw) + 1)
    return raw[:at] + more + raw[at + len(more) :]


def delete_bytes(raw: bytes, place: int, count: int) -> bytes:
    at = place % max(1, len(raw))
    return raw[:at] + raw[at + count :]


def truncate(raw: bytes, place: int) -> bytes:
    return raw[: place % (len(raw) + 1)]


_PLACES = st.integers(0, 2**20)
_PIECES = st.one_of(st.sampled_from(SPECIAL_BYTES), st.binary(min_size=1, max_size=12))
_MUTATIONS = st.one_of(
    st.tuples(st.just(flip_bit), _PLACES, st.integers(0, 7)),
    st.tuples(st.just(insert_bytes), _PLACES, _PIECES),
    st.tuples(st.just(overwrite_bytes), _PLACES, _PIECES),
    st.tuples(st.just(delete_bytes), _PLACES, st.integers(1, 64)),
    st.tuples(st.just(truncate), _PLACES),
)


@st.composite
def damaged_files(draw: st.DrawFn, raw: bytes) -> bytes:
    """Draw ``raw`` after one to four mutations."""
    for mutate, *arguments in draw(st.lists(_MUTATIONS, min_size=1, max_size=4)):
        raw = mutate(raw, *arguments)
    return raw
