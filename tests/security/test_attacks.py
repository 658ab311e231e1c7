"""Every attack ends in a clear error; where it promises or unpacks to absurd sizes, within bounded memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from regtta.errors import RegttaError
from security.attacks import ATTACKS, Attack, injected
from security.making import write
from security.readers import READERS

TESTS = Path(__file__).parent.parent
# What a reader holds by its own limits is at most a frame of a table, a few hundred MB; attacks ask for GBs to EBs.
MOST_MEMORY = 700 * 2**20

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
PLAIN = [attack for attack in ATTACKS if not attack.absurd]
ABSURD = [attack for attack in ATTACKS if attack.absurd]


def check_message(attack: Attack, message: str) -> None:
    file = Path(READERS[attack.reader].file)
    assert file.name in message or f"{file.parent}" in message, message
    assert 30 < len(message) < 3000, message


@pytest.mark.parametrize("attack", PLAIN, ids=[attack.called for attack in PLAIN])
def test_an_attack_ends_in_a_clear_error(attack: Attack, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = READERS[attack.reader]
    write(tmp_path / reader.file, attack.make())
    with pytest.raises(RegttaError) as caught:
        reader.read(tmp_path / reader.file)
    check_message(attack, str(caught.value))
    assert not (tmp_path / "canary").exists(), "a payload ran"
    assert sorted(path.name for path in tmp_path.iterdir()) == [Path(reader.file).parts[0]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What came of each absurd file, in a process of its own that measures itself."""
    run = subprocess.run(
        [sys.executable, str(TESTS / "security" / "measuring.py"), str(tmp_path_factory.mktemp("absurd"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured through /proc")
@pytest.mark.parametrize("attack", ABSURD, ids=[attack.called for attack in ABSURD])
def test_an_absurd_size_ends_in_a_clear_error_within_bounded_memory(attack: Attack, outcomes):
    came = outcomes[attack.called]
    assert came["clear"], came
    assert "MemoryError" not in came["causes"], "it was tried, and the memory did not suffice"
    assert came["grown"] < MOST_MEMORY, came
    check_message(attack, came["message"])


@pytest.mark.parametrize("name", READERS)
def test_a_folder_in_place_of_the_file(name: str, tmp_path: Path):
    reader = READERS[name]
    (tmp_path / reader.file).mkdir(parents=True)
    if "a folder" in reader.forgives or name in ("tar", "tgz"):  # which may be folders
        reader.read(tmp_path / reader.file)
        return
    with pytest.raises(RegttaError):
        reader.read(tmp_path / reader.file)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_reads_what_is_whole(name: str, tmp_path: Path):
    reader = READERS[name]
    write(tmp_path / reader.file, reader.whole())
    if name != "svhn":  # of which only the published files, by their checksums, are read
        reader.read(tmp_path / reader.file)


def test_the_attacks_are_counted():
    """What the documentation quotes. Every one of them is a test above, which says that it ends in a clear error."""
    assert len({attack.called for attack in ATTACKS}) == len(ATTACKS) == sum(injected().values())
    assert {attack.reader for attack in ATTACKS} == set(READERS)
