"""Lines of a run store with chosen scores on the suite of shifts."""

from regtta_bench.shifts.rows import make_table, suite_rows
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.sweep.store import compute_key

PLAN = SweepPlan(seeds=1)


def make_records(shifts, score, rows=None, plan=PLAN):
    """Return the lines of all runs of ``rows`` on ``shifts``.

    ``score(shift, row, source_seed, seed)`` returns the offline R²; None for a run that diverged, and ``...`` for a run
    that is missing. The online R² is lower by 0.1.
    """
    table = make_table(tuple(shifts), rows or suite_rows())
    records = {}
    for row in table.rows:
        for shift, cell in zip(shifts, row.cells, strict=True):
            for source_seed in plan.source_seed_range(shift.setting) if cell is not None else ():
                for seed in range(plan.seeds):
                    value = score(shift, row.name, source_seed, seed)
                    if value is not ...:
                        ((spec, _),) = plan.cell_runs(cell, source_seed, seed)
                        record = make_record(spec, value)
                        records[record["key"]] = record
    return table, list(records.values())


def make_record(spec, value):
    """Return the line of one run with an offline R² of ``value``."""
    online = None if value is None else value - 0.1
    return {
        "key": compute_key(spec.to_dict()),
        "specification": spec.to_dict(),
        "result": {
            "scores": {"offline": {"r2": value}, "online": {"r2": online}},
            "diverged": "predictions" if value is None else "",
            "source_fingerprint": f"of {spec.source.name}",
            "versions": {"regtta": "0"},
            "device": "cpu",
        },
    }
