"""Coverage-guided fuzzing of one reader with atheris.

    python tests/fuzz/fuzz_readers.py --target weights -atheris_runs=20000

Every input is taken as a file, and as damage to a whole file of the target's kind. What a reader may do is give a value
or raise a RegttaError; whatever else it does stops the run. The target ``every`` takes the readers in turn. Further
options go to libFuzzer.
"""

import contextlib
import itertools
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS.parent / "src"), str(TESTS)]

with atheris.instrument_imports(include=["regtta", "regtta_bench"]):
    from regtta.errors import RegttaError
    from security.mutating import TELLING, cut, flipped, overwritten, with_put_in, without
    from security.readers import READERS


def damage(raw: bytes, data: atheris.FuzzedDataProvider) -> bytes:
    """``raw`` after a few changes that ``data`` chooses."""
    for _ in range(data.ConsumeIntInRange(1, 4)):
        place, which = data.ConsumeIntInRange(0, len(raw)), data.ConsumeIntInRange(0, 5)
        if which == 0:
            raw = flipped(raw, place, data.ConsumeIntInRange(0, 7))
        elif which == 1:
            raw = overwritten(raw, place, TELLING[data.ConsumeIntInRange(0, len(TELLING) - 1)])
        elif which == 2:
            raw = with_put_in(raw, place, data.ConsumeBytes(12))
        elif which == 3:
            raw = overwritten(raw, place, data.ConsumeBytes(12))
        elif which == 4:
            raw = without(raw, place, data.ConsumeIntInRange(1, 64))
        else:
            raw = cut(raw, place)
    return raw


def chosen() -> list[str]:
    """The names of the readers that the command line names."""
    place = sys.argv.index("--target") if "--target" in sys.argv[:-1] else 0
    name = sys.argv[place + 1] if place else ""
    if name != "every" and name not in READERS:
        sys.exit(f"Name a reader with --target, or every: {', '.join(READERS)}.")
    del sys.argv[place : place + 2]
    return list(READERS) if name == "every" else [name]


def main() -> None:
    names = chosen()
    warnings.simplefilter("ignore")
    wholes = {name: READERS[name].whole() for name in names}
    turns = itertools.cycle(names)
    with tempfile.TemporaryDirectory() as folder:

        def once(raw: bytes) -> None:
            name = next(turns)
            path = Path(folder) / READERS[name].file
            path.parent.mkdir(exist_ok=True)
            data = atheris.FuzzedDataProvider(raw)
            path.write_bytes(
                data.ConsumeBytes(len(raw)) if data.ConsumeProbability() < 0.2 else damage(wholes[name], data)
            )
            with contextlib.suppress(RegttaError):
                READERS[name].read(path)

        # Inputs are long enough from the start to say what is to be damaged.
        atheris.Setup([sys.argv[0], "-len_control=0", "-max_len=512", *sys.argv[1:]], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
