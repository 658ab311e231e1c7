import itertools

from helpers.sweeps import specs
from regtta_bench.stress.stress_settings import SETTINGS
from regtta_bench.stress.stress_specs import Plan
from regtta_bench.sweep.executors.base import all_models_small, group_by_source, worker_threads


def test_runs_of_one_source_model_stand_together_and_in_it_those_of_one_target():
    plan = Plan(SETTINGS["demo"], source_models=2, kinds=("iid", "sorted"), arms=("ssa",), gate_batches=1)
    mixed = plan.runs()[::2] + plan.runs()[1::2]
    groups = group_by_source(mixed)
    assert [{spec.source.seed for spec in group} for group in groups] == [{0}, {1}]
    assert sorted(map(repr, itertools.chain(*groups))) == sorted(map(repr, mixed))
    for group in groups:
        targets = [target for target, _ in itertools.groupby(group, key=lambda spec: spec.target)]
        assert len(targets) == len(set(targets))


def test_small_models_have_one_thread_and_large_ones_all_cores():
    large = Plan(SETTINGS["svhn-subset"], source_models=1, kinds=("iid",), arms=("ssa",)).runs()
    assert (all_models_small(specs()), all_models_small([*specs(), *large])) == (True, False)
    assert (worker_threads(specs(), 8), worker_threads(large, 8), worker_threads(large, 0)) == (1, 8, 1)
