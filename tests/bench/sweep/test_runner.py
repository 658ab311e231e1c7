import dataclasses

import pytest
import torch
from sklearn.metrics import r2_score

import regtta
from helpers.published_datasets import write_california, write_subset
from helpers.toy_datasets import shrink_models
from regtta.errors import FileError, MissingFileError
from regtta.report.analysis import weight_correlation
from regtta_bench.data.california import california
from regtta_bench.data.loading import DataLocation
from regtta_bench.paper.method_configs import MethodConfig, make_method_config
from regtta_bench.paper.settings import SETTINGS
from regtta_bench.sweep.run_specs import RunSpec, Scale, SweepPlan
from regtta_bench.sweep.runner import Runner, RunnerConfig
from regtta_bench.training import CALIFORNIA, train
from regtta_bench.training.models import tabular_mlp
from regtta_bench.training.recipe import make_seeded

SCALE = Scale(epochs=3, batch_size=16)


@pytest.fixture
def config(tmp_path, monkeypatch):
    shrink_models(monkeypatch)
    write_california(tmp_path, rows=150)
    write_subset(tmp_path, counts=(60, 20), digits=tuple(range(10)) * 3)
    return RunnerConfig(DataLocation(tmp_path), tmp_path / "models")


def spec_of(setting, method_config, seed=0, scale=SCALE):
    part = next(iter(SETTINGS[setting].parts.values()))
    objective = "regression" if method_config is None else method_config.objective
    source = SweepPlan(scale=scale).source_spec(SETTINGS[setting], part, objective, 4)
    return RunSpec(source, part.target if method_config else "", method_config, seed)


def test_a_run_matches_the_library_step_by_step(config, tmp_path):
    method = regtta.SSA(k=5, batch_norm="source")
    found = Runner(config).run(spec_of("california", MethodConfig(method, batch_size=16), seed=2))
    shift = california(tmp_path, seed=4)
    recipe = dataclasses.replace(CALIFORNIA, epochs=3, batch_size=16)
    model = train(make_seeded(lambda: tabular_mlp(8), 4), shift.train, recipe, seed=4)
    source = regtta.collect(model, shift.train.inputs.split(256), head="15")
    order = torch.randperm(len(shift.target), generator=torch.Generator().manual_seed(2))
    target = shift.target.take(order)
    adapter = regtta.Adapter(model, method, source)
    online = torch.cat([step.predictions for step in adapter.run(target.inputs.split(16))])
    assert found["scores"]["online"]["r2"] == pytest.approx(r2_score(target.targets, online), rel=1e-5)
    offline = adapter.predict(target.inputs)
    assert found["scores"]["offline"]["r2"] == pytest.approx(r2_score(target.targets, offline), rel=1e-5)
    assert found["source_fingerprint"] == source.fingerprint
    assert found["device"] == "cpu"


def test_measurements_on_a_source_model(config, tmp_path):
    runner = Runner(config)
    spec = spec_of("california", None)
    found, prepared = runner.run(spec), runner.load_source(spec.source)
    statistics = prepared.statistics(None)
    assert (found["rank"], found["valid"]) == (statistics.rank, statistics.valid_dimensions)
    assert found["correlation"] == weight_correlation(statistics, prepared.model[-1].weight)
    held_out = california(tmp_path, seed=4).validation
    expected = r2_score(held_out.targets, prepared.model(held_out.inputs).detach())
    assert found["validation"]["r2"] == pytest.approx(expected, rel=1e-5)


def test_source_models_and_statistics_are_cached(config):
    told = []
    method_config = make_method_config(SETTINGS["california"], "ssa")
    first = Runner(config, lambda *news: told.append(news)).run(spec_of("california", method_config))
    kept = {path.name: path.stat().st_mtime_ns for path in config.models.iterdir()}
    assert sorted(name.endswith(".safetensors") for name in kept) == [True, True]
    again = Runner(config, lambda *news: told.append(news)).run(spec_of("california", method_config))
    assert first == again
    assert {path.name: path.stat().st_mtime_ns for path in config.models.iterdir()} == kept
    assert told == [("california-mlp-regression-4", done, 3) for done in (1, 2, 3)]


def test_statistics_are_collected_only_for_methods_that_need_them(config):
    for method_config in (MethodConfig(regtta.BNAdapt()), MethodConfig(regtta.NoAdaptation())):
        Runner(config).run(spec_of("california", method_config))
    assert [path.name for path in config.models.glob("*statistics*")] == []
    Runner(config).run(spec_of("california", MethodConfig(regtta.FeatureRestoration(batch_norm="source"))))
    assert len(list(config.models.glob("*statistics*"))) == 1


def test_labels_become_classes_by_source_bins_unless_discrete(config, tmp_path):
    runner = Runner(config)
    for setting, outputs in (("california", 10), ("svhn-subset", 10)):
        method_config = make_method_config(SETTINGS[setting], "source", task="classification")
        spec = spec_of(setting, method_config)
        found = runner.run(spec)
        assert found["scores"]["offline"].keys() == {"accuracy", "count"}
        assert runner.data(spec.source).train.targets.max() <= outputs - 1
    digits = runner.data(spec.source)
    assert digits.target("mnist").targets.squeeze(1).tolist() == [float(n) for n in range(10)] * 3
    rows = runner.data(
        spec_of("california", make_method_config(SETTINGS["california"], "source", task="classification")).source
    )
    values = california(tmp_path, seed=4).train.targets
    low, high = values.min(), values.max()
    expected = ((values - low) / (high - low) * 10).floor().clamp(max=9)
    assert (rows.train.targets == expected).float().mean() > 0.97  # but for rounding at the edges


def test_ttt_and_dann_have_their_own_models(config):
    setting = SETTINGS["svhn-subset"]
    runner = Runner(config)
    runs = {
        name: runner.run(spec_of("svhn-subset", make_method_config(setting, name)))
        for name in ("source", "ttt", "dann")
    }
    assert len({run["source_fingerprint"] for run in runs.values()}) == 3
    assert runs["ttt"]["learned"] == 1
    assert runs["dann"]["learned"] == 0


def test_the_warning_of_the_oracle_is_suppressed(config, caplog):
    Runner(config).run(spec_of("california", make_method_config(SETTINGS["california"], "oracle")))
    assert "learns from target labels" not in caplog.text


def test_rows_are_limited_by_the_scale(config):
    scale = dataclasses.replace(SCALE, train_rows=40, target_rows=20)
    method_config = make_method_config(SETTINGS["california"], "source")
    spec = dataclasses.replace(spec_of("california", method_config, scale=scale), target_rows=20)
    runner = Runner(config)
    assert runner.run(spec)["scores"]["offline"]["count"] == 20
    assert len(runner.data(spec.source).train) == 40


# --- required files ------------------------------------------------------------------------------


def test_missing_data_raises_before_any_work(config, tmp_path):
    method_config = make_method_config(SETTINGS["california"], "source")
    config.check([spec_of("california", method_config), spec_of("svhn-subset", method_config)])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(MissingFileError, match="California Housing is not in"):
        dataclasses.replace(config, place=DataLocation(empty)).check([spec_of("california", method_config)])


def test_initial_weights_must_match_the_specification(config, tmp_path):
    path = tmp_path / "resnet50.pth"
    path.write_bytes(b"ImageNet")
    (tmp_path / "UTKFace").mkdir()
    part = next(iter(SETTINGS["utkface"].parts.values()))
    source = SweepPlan(weights={"resnet50": path}).source_spec(SETTINGS["utkface"], part, "regression", 0)
    with_weights = dataclasses.replace(config, weights={"resnet50": path})
    with_weights.check([RunSpec(source)])
    path.write_bytes(b"of another kind")
    with pytest.raises(FileError, match="resnet50.pth holds other weights than"):
        with_weights.check([RunSpec(source)])
    path.unlink()
    with pytest.raises(FileError, match="resnet50.pth cannot be read"):
        with_weights.check([RunSpec(source)])


def test_with_models_folder_changes_only_the_folder(config, tmp_path):
    moved = config.with_models_folder(tmp_path / "moved")
    assert moved.models == tmp_path / "moved"
    assert moved.with_models_folder(config.models) == config
