"""``regtta adapt --stats`` takes the input columns by the names in the statistics, in any order of the table."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from sklearn.metrics import r2_score

from cli.test_adapt import ADAPT, options
from helpers.cli_processes import make_worker_group, result_or_error
from helpers.cli_workspace import MODEL
from helpers.process_groups import run_in_processes
from regtta.cli.adapt import adapt_model
from regtta.cli.collect import CollectOptions, collect_statistics
from regtta.errors import MismatchError, OptionError
from regtta.statistics.source import SourceStatistics

ORDER = ["c", "y", "a", "b"]


@pytest.fixture
def shuffled(workspace: Path, statistics: Path) -> Path:
    """Return the workspace with a copy of the target data whose columns are in another order."""
    table = pd.read_csv("target.csv")[ORDER]
    table.to_csv("shuffled.csv", index=False)
    table.to_parquet("shuffled.parquet", index=False)
    return workspace


def adapted(data: str, **others: object) -> tuple[pd.DataFrame, float]:
    """Return the predictions and the R² that the command computes."""
    report = adapt_model(options(data, target="y", force=True, **others))
    assert report.scores is not None
    return pd.read_csv("p.csv"), report.scores[1].r2


def test_the_statistics_name_the_columns_of_a_table(workspace: Path, statistics: Path, regtta):
    assert SourceStatistics.load(statistics).columns == ("a", "b", "c")
    assert regtta("collect", *MODEL, "--data", "target.parquet", "--columns", "c,a,b", "--out", "p.safetensors")
    assert SourceStatistics.load("p.safetensors").columns == ("c", "a", "b")
    for data in (["mymodel:batches"], ["target.npz", "--target", "y"]):
        assert regtta("collect", *MODEL, "--data", *data, "--out", "n.safetensors", "--force").exit_code == 0
        found = SourceStatistics.load("n.safetensors")
        assert found.columns == ()
        assert found.input_mean.shape == (3,)


@pytest.mark.parametrize("others", [{}, {"shuffle_seed": 3}, {"columns": ("b", "c", "a")}])
def test_predictions_and_scores_do_not_depend_on_the_order_of_the_columns(shuffled: Path, others):
    expected, score = adapted("target.csv", **others)
    for name in ("shuffled.csv", "shuffled.parquet"):
        found, again = adapted(name, **others)
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
        assert again == score
    assert score == pytest.approx(r2_score(expected["y"], expected["prediction"]), abs=1e-6)


def test_without_names_columns_are_taken_in_their_order(shuffled: Path):
    source = SourceStatistics.load("stats.safetensors")
    replace(source, columns=()).save("stats.safetensors", overwrite=True)
    expected, _ = adapted("target.csv")
    found, _ = adapted("shuffled.csv")
    assert (found["prediction"] - expected["prediction"]).abs().max() > 0.1
    named, _ = adapted("shuffled.csv", columns=("a", "b", "c"))
    pd.testing.assert_frame_equal(named, expected, check_exact=True)


def test_missing_columns_are_named_before_any_work(shuffled: Path, refusal):
    pd.read_csv("target.csv").rename(columns={"a": "A"}).drop(columns="c").to_csv("other.csv", index=False)
    line = refusal(*ADAPT, "--data", "other.csv", "--target", "y", "--predictions", "p.csv")
    assert "The statistics are of 3 input columns: a, b, c. other.csv lacks a, c; it has A, b, y." in line
    assert not Path("p.csv").exists()


def test_further_columns_are_ignored_with_one_warning(shuffled: Path, regtta):
    table = pd.read_csv("target.csv")
    table.insert(1, "id", "sample")  # a text, which no model takes
    table["z"] = 1.0
    table.to_csv("more.csv", index=False)
    line = [*ADAPT, "--data", "more.csv", "--predictions", "more-p.csv"]
    for targets, unused in ((["--target", "y"], "id, z"), ([], "id, y, z")):
        result = regtta(*line, *targets, "--force")
        assert result.exit_code == 0, result.stderr
        assert result.stderr == (
            f"warning: more.csv has columns that the statistics do not name as inputs; they are not used: {unused}.\n"
        )
    expected, _ = adapted("target.csv")
    assert pd.read_csv("more-p.csv")["prediction"].tolist() == expected["prediction"].tolist()
    chosen = regtta(*line, "--columns", "a,b,c", "--force")
    assert (chosen.exit_code, chosen.stderr) == (0, "")


def test_several_targets_are_no_inputs(shuffled: Path, regtta):
    table = pd.read_csv("shuffled.csv")
    table.insert(0, "z", table["y"] + 1)
    table.to_csv("two.csv", index=False)
    two = ["--model", "mymodel:make_two_outputs"]
    assert regtta("collect", *two, "--data", "source.csv", "--target", "y", "--out", "two.safetensors").exit_code == 0
    line = ["adapt", *two, "--stats", "two.safetensors", "--set", "k=3", "--target", "z,y"]
    done = regtta(*line, "--data", "two.csv", "--predictions", "p.csv")
    assert (done.exit_code, done.stderr) == (0, "")
    assert list(pd.read_csv("p.csv").columns) == ["prediction_0", "prediction_1", "z", "y"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("a", "b"), "The statistics are of 3 input columns: a, b, c. --columns lacks c. Leave --columns out"),
        (("a", "b", "c", "y"), "--columns adds y. Leave"),
        (("a", "y", "b"), "--columns lacks c and adds y. Leave"),
    ],
)
def test_other_columns_than_those_of_the_statistics_are_rejected(shuffled: Path, columns, words):
    with pytest.raises(OptionError, match=words):
        adapt_model(options("shuffled.csv", columns=columns))


def test_a_target_among_the_inputs_is_rejected(shuffled: Path):
    with pytest.raises(OptionError, match="--target names one of them, 'b'. Name another column"):
        adapt_model(options("shuffled.csv", target="b"))


def test_a_stream_resumes_with_columns_in_any_order(shuffled: Path):
    checkpoint = {"checkpoint": Path("c.safetensors"), "resume": True}
    whole, _ = adapted("shuffled.csv")
    pd.read_csv("shuffled.csv")[:48].to_csv("stream.csv", index=False)
    adapted("stream.csv", **checkpoint)
    pd.read_csv("target.csv").to_csv("stream.csv", index=False)
    resumed, _ = adapted("stream.csv", columns=("b", "a", "c"), **checkpoint)
    pd.testing.assert_frame_equal(resumed, whole, check_exact=True)


def _collect_and_adapt(group, folder: str) -> list:
    workers = make_worker_group(group, folder)
    weights = Path("weights.safetensors")
    collect = CollectOptions(
        model="mymodel:make_double", data="source.csv", target="y", out=Path("d.safetensors"), weights=weights
    )
    adapt = replace(options("shuffled.csv", target="y"), model="mymodel:make_double", stats=Path("d.safetensors"))
    broken = replace(adapt, columns=("a",), predictions=Path("q.csv"))
    runs = ((collect_statistics, collect), (adapt_model, adapt), (adapt_model, broken))
    return [result_or_error(run, each, None, workers) for run, each in runs]


def test_two_processes_take_the_columns_by_name(shuffled: Path):
    first, second = run_in_processes(2, _collect_and_adapt, shuffled, str(shuffled))
    assert SourceStatistics.load("d.safetensors").columns == ("a", "b", "c")
    together = pd.read_csv("p.csv")
    alone = replace(options(target="y"), model="mymodel:make_double", stats=Path("d.safetensors"), force=True)
    report = adapt_model(alone)
    pd.testing.assert_frame_equal(together, pd.read_csv("p.csv"), rtol=1e-9)
    assert first[1].scores[1].r2 == pytest.approx(report.scores[1].r2, rel=1e-9)
    assert first[2].startswith("OptionError: The statistics are of 3 input columns: a, b, c. --columns lacks b, c.")
    assert second[2].startswith("PeerError")


def test_a_mismatch_is_an_error_of_its_own_kind(shuffled: Path):
    pd.read_csv("target.csv")[["a", "y"]].to_csv("few.csv", index=False)
    with pytest.raises(MismatchError, match="few.csv lacks b, c"):
        adapt_model(options("few.csv", target="y"))
