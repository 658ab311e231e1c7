import json
import math
import os
import struct

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from regtta.errors import (
    ExistingFileError,
    InvalidFileError,
    MissingFileError,
    NewerFormatError,
    OptionError,
    RegttaError,
    TruncatedFileError,
)
from regtta.persistence import state_files
from regtta.persistence.atomic_files import TEMPORARY_SUFFIX, atomic_write
from regtta.persistence.state_files import read_state, write_state

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8,
          torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64, torch.complex64,
          torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2fnuz]  # fmt: skip


def bits(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist()


def assert_same(a, b):
    """Assert that two states are equal in every type and bit."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert [(type(key), str(key)) for key in a] == [(type(key), str(key)) for key in b]
        for one, other in zip(a.values(), b.values(), strict=True):
            assert_same(one, other)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    elif isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, bits(a)) == (b.dtype, b.shape, bits(b))
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    else:
        assert a == b


def tensor_of(dtype, shape, content, transposed):
    size = torch.empty(0, dtype=dtype).element_size() * math.prod(shape)
    raw = (content * (size // max(len(content), 1) + 1))[:size] if content else bytes(size)
    if dtype is torch.bool:  # other bytes are invalid booleans
        raw = bytes(byte % 2 for byte in raw)
    values = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    values = values.view(dtype).reshape(shape)
    return values.T if transposed and len(shape) == 2 else values


TENSORS = st.builds(
    tensor_of,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.binary(max_size=20),
    st.booleans(),
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
STATES = st.recursive(
    PLAIN | TENSORS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STATES)
def test_states_round_trip_exactly(tmp_path, state):
    write_state(tmp_path / "s", state, overwrite=True)
    assert_same(read_state(tmp_path / "s"), state)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype_round_trip(tmp_path, dtype):
    whole = tensor_of(dtype, (2, 3), bytes(range(48)), False)
    state = [whole, whole.T, whole[0, 0], whole[:0], whole[:, ::2]]
    write_state(tmp_path / "s", state)
    assert_same(read_state(tmp_path / "s"), state)


def test_similar_keys_are_distinguished(tmp_path):
    one, two = torch.ones(1), torch.zeros(2)
    state = {
        0: one,
        "0": two,
        "a/b": one,
        "a": {"b": two},
        "__metadata__": one,
        "tensor": "x",
        "dict": {"float": "nan"},
    }
    write_state(tmp_path / "s", state)
    assert_same(read_state(tmp_path / "s"), state)


def test_parameters_and_conjugates_are_restored_as_values(tmp_path):
    parameter, number = torch.nn.Parameter(torch.ones(2)), torch.tensor([1 + 2j])
    write_state(tmp_path / "s", {"p": parameter, "c": number.conj(), "t": torch.Size([2])})
    found = read_state(tmp_path / "s")
    assert type(found["p"]) is torch.Tensor
    assert not found["p"].requires_grad
    assert found["c"].item() == 1 - 2j
    assert type(found["t"]) is tuple


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_gpu_tensors_are_restored_on_the_cpu(tmp_path):
    write_state(tmp_path / "s", torch.arange(3.0, device="cuda"))
    assert_same(read_state(tmp_path / "s"), torch.arange(3.0))


def test_the_file_is_plain_safetensors_with_readable_names(tmp_path):
    write_state(tmp_path / "s", {"learner": {"tensors": {"1.weight": torch.ones(2)}}})
    assert load_file(tmp_path / "s").keys() == {"state/learner/tensors/1.weight"}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a": {1, 2}}, "found set at state/a"),
        ([object()], "found object at state/0"),
        ({(1, 2): 3}, "plain keys in a state, found tuple"),
        (torch.eye(2).to_sparse(), "dense tensors"),
        (10**5000, "cannot be written"),
    ],
    ids=["set", "object", "key", "sparse", "number"],
)
def test_invalid_states_are_rejected(tmp_path, state, words):
    with pytest.raises(OptionError, match=words):
        write_state(tmp_path / "s", state)
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_replaced_only_with_overwrite(tmp_path):
    write_state(tmp_path / "s", 1)
    with pytest.raises(ExistingFileError, match="overwrite=True"):
        write_state(tmp_path / "s", 2)
    write_state(tmp_path / "s", 2, overwrite=True)
    assert read_state(tmp_path / "s") == 2


# --- damaged files --------------------------------------------------------------------------------


STATE = {"weights": torch.arange(5.0), "step": 3, "rate": float("nan")}


def test_every_truncation_is_detected(tmp_path):
    write_state(tmp_path / "s", STATE)
    content = (tmp_path / "s").read_bytes()
    for length in range(len(content)):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(RegttaError):
            read_state(tmp_path / "cut")
    with pytest.raises(TruncatedFileError, match="cut off"):
        read_state(tmp_path / "cut")


def test_every_changed_byte_is_detected_or_irrelevant(tmp_path):
    write_state(tmp_path / "s", STATE)
    content = bytearray((tmp_path / "s").read_bytes())
    noticed = 0
    for position in range(len(content)):
        content[position] ^= 0x15
        (tmp_path / "bad").write_bytes(content)
        content[position] ^= 0x15
        try:
            assert_same(read_state(tmp_path / "bad"), STATE)
        except RegttaError:
            noticed += 1
    assert noticed > 0.8 * len(content)  # the others are in the version that wrote the file


def test_invalid_and_newer_files(tmp_path, monkeypatch):
    path = tmp_path / "s"
    with pytest.raises(MissingFileError):
        read_state(path)
    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(InvalidFileError, match="not a checkpoint of a stream"):
        read_state(path)
    for nonsense in ("{", "[]", '{"format": 1}', '{"format": "x", "state": "1"}', '{"format": 1, "state": 1}'):
        save_file({}, path, {"regtta.state": nonsense})
        with pytest.raises(InvalidFileError, match="not a checkpoint of a stream"):
            read_state(path)
    for text in ('{"none": 1}', '{"tensor": "absent"}', '{"dict": [1]}', "{", '{"tensor": "t", "dtype": "nn"}'):
        about = {"format": 1, "state": text, "digest": state_files._digest(text, {})}
        save_file({}, path, {"regtta.state": json.dumps(about)})
        with pytest.raises(InvalidFileError, match="has no state"):
            read_state(path)
    monkeypatch.setattr(state_files, "STATE_FORMAT_VERSION", state_files.STATE_FORMAT_VERSION + 1)
    write_state(path, 1, overwrite=True)
    monkeypatch.undo()
    with pytest.raises(NewerFormatError, match="Upgrade regtta"):
        read_state(path)


def kill_while_writing(path, content, length):
    """Fork a process that ends abruptly after writing ``length`` bytes of the temporary file."""
    child = os.fork()
    if child == 0:
        with atomic_write(path) as temporary:
            temporary.write_bytes(content[:length])
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_kill_at_any_byte_leaves_the_last_good_file_and_one_temporary_file(tmp_path):
    path = tmp_path / "s"
    write_state(path, STATE)
    write_state(tmp_path / "next", STATE | {"step": 4})
    content = (tmp_path / "next").read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for length in (0, 1, 7, 8, 9, header // 2, header - 1, header, header + 1, len(content) - 1, len(content)):
        kill_while_writing(path, content, length)
        assert_same(read_state(path), STATE)
        assert sum(found.name.endswith(TEMPORARY_SUFFIX) for found in tmp_path.iterdir()) == 1
    write_state(path, STATE | {"step": 4}, overwrite=True)
    assert read_state(path)["step"] == 4
    assert sorted(found.name for found in tmp_path.iterdir()) == ["next", "s"]


@pytest.mark.parametrize("size", [0, 1])
def test_a_strided_tensor_of_a_type_that_travels_as_bytes(tmp_path, size):
    """Such a tensor counts as contiguous, whatever its stride."""
    value = torch.arange(4).to(torch.complex64)[::2][:size]
    assert value.stride() == (2,)
    write_state(tmp_path / "s.safetensors", {"value": value})
    assert torch.equal(read_state(tmp_path / "s.safetensors")["value"], value)
