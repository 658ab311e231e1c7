"""Coverage-guided fuzzing of saved states with atheris.

    python tests/fuzz/fuzz_states.py -atheris_runs=20000

Every input says which values of which stream's state to change and how. The state is written with a right digest,
read, resumed and stepped from. It may be refused by a RegttaError, or give finite predictions; whatever else happens
stops the run. Further options go to libFuzzer.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS.parent / "src"), str(TESTS)]

with atheris.instrument_imports(include=["regtta", "regtta_bench"]):
    import regtta
    from regtta.errors import RegttaError
    from regtta.persistence.state_files import write_state
    from security.hostile_states import CHANGES, STREAM, STREAMS, changed, kept, nodes


def hostile(state: object, places: list, data: atheris.FuzzedDataProvider) -> object:
    """``state`` after a few changes that ``data`` chooses."""
    kinds = list(CHANGES.values())
    for _ in range(data.ConsumeIntInRange(1, 3)):
        where = places[data.ConsumeIntInRange(0, len(places) - 1)]
        try:
            state = changed(state, where, kinds[data.ConsumeIntInRange(0, len(kinds) - 1)])
        except (KeyError, IndexError, TypeError, RuntimeError):
            continue  # an earlier change has taken the place away
    return state


def main() -> None:
    warnings.simplefilter("ignore")
    names = list(STREAMS)
    states = {name: kept(STREAMS[name]) for name in names}
    places = {name: [where for where, _ in nodes(states[name])] for name in names}
    adapters = {name: STREAMS[name].make() for name in names}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.safetensors"

        def once(raw: bytes) -> None:
            data = atheris.FuzzedDataProvider(raw)
            name = names[data.ConsumeIntInRange(0, len(names) - 1)]
            state = {"batches": 3, "adapter": hostile(states[name], places[name], data)}
            write_state(path, state, overwrite=True)
            keeper = regtta.Checkpoints(adapters[name], path)
            try:
                keeper.resume()
            except RegttaError:
                return
            for x in STREAM[-2:]:
                if not bool(keeper.adapt(x).predictions.isfinite().all()):
                    raise AssertionError("predictions are not finite")

        # Inputs are long enough from the start to say what is to be changed.
        atheris.Setup([sys.argv[0], "-len_control=0", "-max_len=64", *sys.argv[1:]], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
