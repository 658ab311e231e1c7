import re
from html import unescape
from pathlib import Path

import pytest

from helpers.cli_workspace import MODEL
from regtta.cli.report import make_report
from regtta.errors import ExistingFileError, OptionError

RESULTS = Path(__file__).parents[2] / "results"
PLAIN = ["adapt", *MODEL, "--method", "bn_adapt", "--batch-size", "16", "--data", "target.csv", "--columns", "a,b,c"]


@pytest.fixture
def record(workspace, regtta):
    """Write the record that is quickest to draw: no statistics, no labels."""
    assert regtta(*PLAIN, "--record", "run.json").exit_code == 0
    return workspace / "run.json"


def heading(path):
    return unescape(re.search(r"<h1[^>]*>(.*?)</h1>", Path(path).read_text(encoding="utf-8"))[1])


def command(path):
    """Return the command at the end of the page."""
    inside = re.search(r'<pre id="command"><code>(.*?)</code>', Path(path).read_text(encoding="utf-8"), re.DOTALL)[1]
    return unescape(re.sub(r"</?span>", "", inside))


def test_a_run_and_its_page(workspace, regtta):
    """The run has labels; the examples in the help cover statistics."""
    labelled = ["adapt", *MODEL, "--method", "bn_adapt", "--batch-size", "16", "--data", "target.csv", "--target", "y"]
    done = regtta(*labelled, "--record", "run.json")
    assert done.exit_code == 0, done.stderr
    result = regtta("report", "run.json", "--out", "page.html")
    assert result.exit_code == 0, result.stderr
    verdict, written = (line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert verdict[0] == "verdict"
    assert verdict[1].startswith("bn_adapt ")
    assert written == ["written", "page.html"]
    assert heading("page.html") == verdict[1]
    text = Path("page.html").read_text(encoding="utf-8")
    assert text.count('<img src="data:image/png') == 3  # predictions before and after, and the stream
    assert command("page.html") == (
        "regtta adapt --model mymodel:make --weights weights.safetensors --method bn_adapt --data target.csv "
        "--target y --batch-size 16 --record run.json\nregtta report run.json --out page.html"
    )
    assert "Only 70 samples" in text


def test_default_name_of_the_page(record, regtta):
    assert regtta("report", "run.json").exit_code == 0
    assert heading("report.html").startswith("bn_adapt adapted the model")


def test_several_runs_are_compared_side_by_side(record, regtta):
    again = [word.replace("bn_adapt", "source") for word in PLAIN]
    assert regtta(*again, "--record", "other run.json").exit_code == 0
    assert regtta("report", "run.json", "other run.json", "--out", "page.html").exit_code == 0
    text = Path("page.html").read_text(encoding="utf-8")
    assert "Side by side" in text
    assert re.search(r"<dd>bn_adapt, source</dd>", text)
    assert command("page.html").splitlines()[-1] == "regtta report run.json 'other run.json' --out page.html"


def test_an_existing_page_is_kept_without_force(record, regtta, refusal):
    Path("page.html").write_text("mine")
    assert "page.html exists. Choose another path, or pass --force" in refusal(
        "report", "run.json", "--out", "page.html"
    )
    assert Path("page.html").read_text() == "mine"
    assert regtta("report", "run.json", "--out", "page.html", "--force").exit_code == 0
    assert heading("page.html").startswith("bn_adapt")
    assert command("page.html").endswith("--out page.html --force")


def test_outputs_are_checked_before_anything_is_read(tmp_path):
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(ExistingFileError):
        make_report([tmp_path / "gone.json"], tmp_path / "page.html")


@pytest.mark.parametrize("name", ["page.htm", "page", "page.pdf"])
def test_a_page_must_end_in_html(record, refusal, name):
    assert f"Expected --out to end in .html, found {name}" in refusal("report", "run.json", "--out", name)
    assert not Path(name).exists()


def test_a_page_never_replaces_its_input(record):
    odd = record.rename(record.with_name("run.html"))
    with pytest.raises(OptionError, match="is also an input"):
        make_report([odd], odd, force=True)


def test_a_missing_folder_is_reported(record, refusal):
    assert "There is no folder gone" in refusal("report", "run.json", "--out", "gone/page.html")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (["gone.json"], "There is no file or folder gone.json"),
        (["target.csv"], "target.csv is not a table of regtta reproduce"),
        (["mymodel.py"], "mymodel.py is not a recorded run"),
        (["run.json", "target.csv"], "Expected runs of one kind"),
        (["foreign.json"], "foreign.json is not a record of regtta adapt"),
    ],
)
def test_paths_that_are_not_runs_give_one_line(record, refusal, runs, said):
    Path("foreign.json").write_text("{}")
    assert said in refusal("report", *runs, "--out", "page.html")
    assert not Path("page.html").exists()


def test_a_damaged_record_gives_one_line(record, refusal):
    Path("cut.json").write_text('{"format": "regtta.adaptation/1"}')
    assert "cut.json" in refusal("report", "cut.json", "--out", "page.html")


def test_a_report_needs_a_run(regtta):
    assert regtta("report").exit_code == 2


def test_a_table_of_reproduce(workspace, regtta):
    lines = (RESULTS / "california" / "california.csv").read_text(encoding="utf-8").splitlines()
    kept = [lines[0], *(line for line in lines if line.startswith("california,"))]
    Path("california.csv").write_text("\n".join(kept), encoding="utf-8")
    result = regtta("report", "california.csv", "--out", "page.html")
    assert result.exit_code == 0, result.stderr
    assert heading("page.html") == "SSA is behind the source model on california: −0.059 in R²."
