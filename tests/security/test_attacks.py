"""Every attack ends in a clear error, and oversized ones do so within bounded memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from regtta.errors import RegttaError
from security.attacks import ATTACKS, Attack, count_attacks
from security.file_builders import write
from security.readers import READERS

TESTS = Path(__file__).parent.parent
# The limits of readers allow one frame of a table, a few hundred MB; attacks ask for GBs to EBs.
MAX_MEMORY = 700 * 2**20

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
PLAIN = [attack for attack in ATTACKS if not attack.is_oversized]
OVERSIZED = [attack for attack in ATTACKS if attack.is_oversized]


def check_message(attack: Attack, message: str) -> None:
    file = Path(READERS[attack.reader].file)
    assert file.name in message or f"{file.parent}" in message, message
    assert 30 < len(message) < 3000, message


@pytest.mark.parametrize("attack", PLAIN, ids=[attack.title for attack in PLAIN])
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
    """Outcome of each oversized file, in a process of its own that measures itself."""
    run = subprocess.run(
        [sys.executable, str(TESTS / "security" / "measure_memory.py"), str(tmp_path_factory.mktemp("oversized"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured through /proc")
@pytest.mark.parametrize("attack", OVERSIZED, ids=[attack.title for attack in OVERSIZED])
def test_an_oversized_file_ends_in_a_clear_error_within_bounded_memory(attack: Attack, outcomes):
    outcome = outcomes[attack.title]
    assert outcome["clear"], outcome
    assert "MemoryError" not in outcome["causes"], "the memory was requested, and did not suffice"
    assert outcome["growth"] < MAX_MEMORY, outcome
    check_message(attack, outcome["message"])


@pytest.mark.parametrize("name", READERS)
def test_a_folder_in_place_of_the_file(name: str, tmp_path: Path):
    reader = READERS[name]
    (tmp_path / reader.file).mkdir(parents=True)
    if "a folder" in reader.undetectable or name in ("tar", "tgz"):  # may be folders
        reader.read(tmp_path / reader.file)
        return
    with pytest.raises(RegttaError):
        reader.read(tmp_path / reader.file)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_reads_a_valid_file(name: str, tmp_path: Path):
    reader = READERS[name]
    write(tmp_path / reader.file, reader.make_valid())
    if name != "svhn":  # reads only the published files, by their checksums
        reader.read(tmp_path / reader.file)


def test_the_attacks_are_counted():
    """Check the numbers that docs/faults.md quotes; each attack is a test above."""
    assert len({attack.title for attack in ATTACKS}) == len(ATTACKS) == sum(count_attacks().values())
    assert {attack.reader for attack in ATTACKS} == set(READERS)
