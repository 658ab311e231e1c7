"""Records of a run store with chosen scores, in the form that runs of the stress benchmark write."""

import json

from regtta_bench.stress.stress_settings import STRESS_SETTINGS
from regtta_bench.stress.stress_specs import make_spec
from regtta_bench.sweep.store import compute_key


def line(r2, source_r2=0.5, *, setting="demo", seed=0, kind="iid", part="blurred", length=None, **rest):
    """Return a record; ``rest`` holds method_name, guards, batch_size, and values of the result."""
    defaults = {"method_name": "ssa", "guards": "plain", "batch_size": 64}
    options = {name: rest.pop(name, value) for name, value in defaults.items()}
    spec = make_spec(STRESS_SETTINGS[setting], seed, kind, part, length=length, **options)
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
    return line(r2, r2, method_name="source", **where)
