import contextlib
import dataclasses

import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import regtta
from regtta.methods import SSA, NoAdaptation
from regtta_bench.data import Domain
from regtta_bench.demo.demo_recipe import DemoMethod
from regtta_bench.demo.demo_study import make_source, one_thread, run_method, run_scenes, scene_images


def by_hand(source, images, method):
    """Return offline and online predictions, computed without the code of the demo."""
    adapter = regtta.Adapter(source.model, method, source.statistics)
    online = torch.cat([adapter.adapt(images[at : at + 32]).predictions for at in range(0, len(images), 32)])
    return adapter.predict(images).squeeze(1), online.squeeze(1)


@pytest.mark.parametrize("scene", ["clean", "noisy"])
@pytest.mark.parametrize("name", ["source", "bn_adapt", "ssa"])
def test_scores_agree_with_the_library_by_hand_and_scikit_learn(toy, toy_source, scene, name):
    images, labels = scene_images(toy, scene, toy_source), toy_source.target.targets
    run = run_method(toy.find_method(name), toy_source, Domain(images, labels), scene=scene, batch_size=32)
    predictions = by_hand(toy_source, images, toy.find_method(name).method)
    for protocol, predicted in zip(("offline", "online"), predictions, strict=True):
        scores = run.outcome.scores[protocol]
        assert scores["count"] == len(labels)
        assert scores["r2"] == pytest.approx(r2_score(labels, predicted), abs=1e-4)
        assert scores["rmse"] == pytest.approx(root_mean_squared_error(labels, predicted), abs=1e-4)
        assert scores["mae"] == pytest.approx(mean_absolute_error(labels, predicted), abs=1e-4)


def test_verdicts_are_counted(toy, toy_source):
    stream = toy_source.target  # 65 digits: two batches of 32 and one of 1
    learning = run_method(toy.find_method("ssa"), toy_source, stream, scene="clean", batch_size=32)
    assert (learning.outcome.learned, learning.outcome.refused) == (2, {"a batch of 1 has no variance": 1})
    still = run_method(toy.find_method("source"), toy_source, stream, scene="clean", batch_size=32)
    assert still.outcome.learned == 0
    assert sum(still.outcome.refused.values()) == 3


def test_source_scores_the_same_online_and_offline(toy, toy_source):
    run = run_method(
        DemoMethod("source", "Source", NoAdaptation()), toy_source, toy_source.target, scene="", batch_size=32
    )
    assert run.outcome.scores["online"]["r2"] == pytest.approx(run.outcome.scores["offline"]["r2"], abs=1e-6)
    assert run.outcome.diverged == ""


def test_every_method_runs_on_every_scene_from_the_same_source(toy, toy_source):
    before = regtta.fingerprint(toy_source.model)
    runs = list(run_scenes(toy, toy_source))
    assert [(run.scene, run.method_name) for run in runs] == [(s, a.name) for s in toy.scenes for a in toy.methods]
    assert regtta.fingerprint(toy_source.model) == before
    assert {run.outcome.diverged for run in runs} == {""}
    # The order of methods must not matter, else one of them left state behind.
    turned = dataclasses.replace(toy, methods=(toy.methods[0], *reversed(toy.methods[1:])))
    assert {(r.scene, r.method_name): r.outcome.scores for r in run_scenes(turned, toy_source)} == {
        (r.scene, r.method_name): r.outcome.scores for r in runs
    }


def test_twice_is_bit_identical_whatever_the_global_generator_holds(toy):
    first = list(run_scenes(toy, make_source(toy, seed=1)))
    torch.rand(11)
    before = torch.get_rng_state()
    again = list(run_scenes(toy, make_source(toy, seed=1)))
    assert first == again
    assert torch.equal(torch.get_rng_state(), before)
    assert first != list(run_scenes(toy, make_source(toy, seed=2)))


def test_a_run_that_leaves_the_finite_numbers_has_diverged(toy, toy_source):
    wild = DemoMethod("ssa", "SSA", SSA.from_paper(clip=True, lr=1e30))
    run = run_method(wild, toy_source, toy_source.target, scene="clean", batch_size=16)
    assert run.outcome.diverged
    assert run.outcome.scores["offline"]["r2"] is None or "loss" in run.outcome.diverged


def test_threads_are_put_back_even_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with contextlib.suppress(KeyError), one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
