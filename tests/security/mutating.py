"""Damage to a file: bytes flipped, put in, taken out, or cut off at the end; for hypothesis and for atheris."""

from hypothesis import strategies as st

# Bytes that formats set much store by: nothing, everything, the sign bit, and what opens and parts texts.
TELLING = (b"\x00", b"\xff", b"\x80", b"\x7f", b"[", b'"', b",", b"\n", b"-", b"9" * 20, b"\xff" * 8)


def flipped(raw: bytes, place: int, bit: int) -> bytes:
    at = place % max(1, len(raw))
    return raw[:at] + bytes(byte ^ (1 << bit % 8) for byte in raw[at : at + 1]) + raw[at + 1 :]


def with_put_in(raw: bytes, place: int, more: bytes) -> bytes:
    at = place % (len(raw) + 1)
    return raw[:at] + more + raw[at:]


def overwritten(raw: bytes, place: int, more: bytes) -> bytes:
    at = place % (len(raw) + 1)
    return raw[:at] + more + raw[at + len(more) :]


def without(raw: bytes, place: int, count: int) -> bytes:
    at = place % max(1, len(raw))
    return raw[:at] + raw[at + count :]


def cut(raw: bytes, place: int) -> bytes:
    return raw[: place % (len(raw) + 1)]


_PLACES = st.integers(0, 2**20)
_PIECES = st.one_of(st.sampled_from(TELLING), st.binary(min_size=1, max_size=12))
_CHANGES = st.one_of(
    st.tuples(st.just(flipped), _PLACES, st.integers(0, 7)),
    st.tuples(st.just(with_put_in), _PLACES, _PIECES),
    st.tuples(st.just(overwritten), _PLACES, _PIECES),
    st.tuples(st.just(without), _PLACES, st.integers(1, 64)),
    st.tuples(st.just(cut), _PLACES),
)


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """``raw`` after one change or a few."""
    for change, *arguments in draw(st.lists(_CHANGES, min_size=1, max_size=4)):
        raw = change(raw, *arguments)
    return raw
