"""Lines of a store with chosen numbers, as runs of the benchmark would have written them."""

import json

from regtta_bench.stress.stress_settings import SETTINGS
from regtta_bench.stress.stress_specs import spec_of
from regtta_bench.sweep.store import compute_key


def line(r2, source_r2=0.5, *, setting="demo", seed=0, kind="iid", part="blurred", length=None, **rest):
    """A record; ``rest`` holds arm, guards, batch_size, and parts of the result."""
    names = {"arm": "ssa", "guards": "plain", "batch_size": 64}
    arm = {name: rest.pop(name, value) for name, value in names.items()}
    spec = spec_of(SETTINGS[setting], seed, kind, part, length=length, **arm)
    result = {
        "samples": 100,
        "r2": r2,
        "source_r2": source_r2,
        "slices": [r2] * 20,
        "batches": 10,
        "learned": 9,
        "refused": {"no shift": 1},
        "returned": {},
        "first_learned": 1,
        "diverged": "",
        "source_fingerprint": "0" * 64,
        "versions": {"regtta": "0.1"},
        "device": "cpu",
    } | rest
    record = {"key": compute_key(spec.to_dict()), "specification": spec.to_dict(), "result": result}
    return json.loads(json.dumps(record))


def source_line(r2=0.5, **where):
    return line(r2, r2, arm="source", **where)
