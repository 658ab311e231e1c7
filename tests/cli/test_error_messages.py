import pytest

from regtta.cli.error_messages import command_line_message
from regtta.errors import RegttaError
from regtta.optional_imports import missing_extra_message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Leave head= out, or collect", "Leave --head out, or collect"),
        ("allow_mismatch=True goes on", "--allow-mismatch goes on"),
        ("no inputs=<key> was given. Pass inputs=<key>;", "no --inputs NAME was given. Pass --inputs NAME;"),
        ("inputs='x' names a key. Leave inputs= out", "--inputs 'x' names a key. Leave --inputs out"),
        ('k="auto" takes the rank', "--set k=auto takes the rank"),
        ("k=None takes all", "--set k=none takes all"),
        ("overhead= stays, ahead=<name>", "overhead= stays, ahead=<name>"),
        ("two\n  lines", "two lines"),
        ("there. Or pass download=True; on the command line, --download.", "there. Or pass --download."),
        ("Or call download_california on that folder; on the command line, --download.", "Or pass --download."),
        ("No folder of data sets was given. Pass one, or", "No folder of data sets was given. Pass --data DIR, or"),
    ],
)
def test_python_terms_become_command_line_options(message, expected):
    assert command_line_message(RegttaError(message)) == expected


def test_the_message_names_the_extra():
    def lacking(name: str) -> str | None:
        return missing_extra_message(ModuleNotFoundError(f"No module named {name!r}", name=name))

    assert 'pip install "regtta[cli]"' in str(lacking("pyarrow.parquet"))
    assert 'pip install "regtta[report]"' in str(lacking("matplotlib.figure"))
    assert 'pip install "regtta[bench]"' in str(lacking("sklearn.linear_model"))
    assert lacking("pandasaurus") is None
    assert missing_extra_message(ModuleNotFoundError("nameless")) is None
