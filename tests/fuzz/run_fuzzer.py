"""Coverage-guided fuzzing of the readers and of saved states with atheris.

    python tests/fuzz/run_fuzzer.py --target weights -atheris_runs=20000

An input of a reader is either the file itself or the mutations of a valid file. The reader may return a value or raise
a RegttaError; anything else stops the run. An input of the target ``states`` selects values of a stream's state and
their changes: the state is written with a valid digest, resumed and stepped from, and may be refused by a RegttaError
or give finite predictions. The target ``every`` cycles through all of them. Further options are passed to libFuzzer.
"""

import contextlib
import itertools
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS.parent / "src"), str(TESTS)]

with atheris.instrument_imports(include=["regtta", "regtta_bench"]):
    import regtta
    from fuzz.targets import STATES, parse_target
    from helpers.attaching import attach
    from regtta.errors import RegttaError
    from regtta.persistence.state_files import write_state
    from security.hostile_states import CHANGES, STREAM, STREAMS, iterate_nodes, make_state, replace_value
    from security.mutations import SPECIAL_BYTES, delete_bytes, flip_bit, insert_bytes, overwrite_bytes, truncate
    from security.readers import READERS

Input = atheris.FuzzedDataProvider


def mutate(raw: bytes, data: Input) -> bytes:
    """Apply one to four mutations that ``data`` selects."""
    for _ in range(data.ConsumeIntInRange(1, 4)):
        place, which = data.ConsumeIntInRange(0, len(raw)), data.ConsumeIntInRange(0, 5)
        if which == 0:
            raw = flip_bit(raw, place, data.ConsumeIntInRange(0, 7))
        elif which == 1:
            raw = overwrite_bytes(raw, place, SPECIAL_BYTES[data.ConsumeIntInRange(0, len(SPECIAL_BYTES) - 1)])
        elif which == 2:
            raw = insert_bytes(raw, place, data.ConsumeBytes(12))
        elif which == 3:
            raw = overwrite_bytes(raw, place, data.ConsumeBytes(12))
        elif which == 4:
            raw = delete_bytes(raw, place, data.ConsumeIntInRange(1, 64))
        else:
            raw = truncate(raw, place)
    return raw


def change_state(state: object, places: list, data: Input) -> object:
    """Apply one to three changes that ``data`` selects."""
    changes = list(CHANGES.values())
    for _ in range(data.ConsumeIntInRange(1, 3)):
        where = places[data.ConsumeIntInRange(0, len(places) - 1)]
        try:
            state = replace_value(state, where, changes[data.ConsumeIntInRange(0, len(changes) - 1)])
        except (KeyError, IndexError, TypeError, RuntimeError):
            continue  # an earlier change has removed the place
    return state


def reader_target(name: str, folder: Path) -> Callable[[Input], None]:
    """Return the function that writes an input to a file and reads it."""
    reader = READERS[name]
    valid, path = reader.make_valid(), folder / reader.file
    path.parent.mkdir(exist_ok=True)

    def run(data: Input) -> None:
        from_scratch = data.ConsumeProbability() < 0.2
        path.write_bytes(data.ConsumeBytes(data.remaining_bytes()) if from_scratch else mutate(valid, data))
        with contextlib.suppress(RegttaError):
            reader.read(path)

    return run


def state_target(folder: Path) -> Callable[[Input], None]:
    """Return the function that changes the state of a stream, resumes it and adapts."""
    names = list(STREAMS)
    states = {name: make_state(STREAMS[name]) for name in names}
    places = {name: [where for where, _ in iterate_nodes(states[name])] for name in names}
    adapters = {name: STREAMS[name].make() for name in names}
    path = folder / "state.safetensors"

    def run(data: Input) -> None:
        name = names[data.ConsumeIntInRange(0, len(names) - 1)]
        state = change_state(states[name], places[name], data)
        write_state(path, {"batches": 3, "adapter": state}, overwrite=True)
        checkpoint = attach(regtta.Checkpoint(path), adapters[name])
        try:
            checkpoint.resume()
        except RegttaError:
            return
        for x in STREAM[-2:]:
            if not bool(adapters[name].adapt(x).predictions.isfinite().all()):
                raise AssertionError("predictions are not finite")

    return run


def run_next(turns: "itertools.cycle[Callable[[Input], None]]", raw: bytes) -> None:
    """Pass one input to the next target."""
    next(turns)(Input(raw))


def main() -> None:
    names, arguments = parse_target(sys.argv)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        targets = [state_target(folder) if name == STATES else reader_target(name, folder) for name in names]
        once = partial(run_next, itertools.cycle(targets))
        # Inputs are long from the start, so that they select places in the whole file.
        atheris.Setup([arguments[0], "-len_control=0", "-max_len=512", *arguments[1:]], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
