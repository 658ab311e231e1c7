import json
from dataclasses import replace

import pytest
import torch

from benchmarks.speed import record as records
from benchmarks.speed.bench import QUICK, Bench
from benchmarks.speed.findings import Fact, Findings
from benchmarks.speed.record import FILE, Record, made_with, read, resume_record, write
from regtta.errors import InvalidFileError, MismatchError


@pytest.fixture
def bench(tmp_path):
    return Bench(torch.device("cpu"), tmp_path, quick=True, effort=QUICK)


def kept(bench, value=1.0):
    record = Record(made_with(bench)).adding("a", Findings("A", facts=(Fact("x", value),)))
    write(record, bench.out / FILE)
    return record


def test_written_record_is_read_back(bench):
    record = kept(bench)
    assert read(bench.out / FILE) == record
    assert [path.name for path in bench.out.iterdir()] == [FILE]


def test_record_of_the_same_machine_is_resumed(bench):
    assert resume_record(bench, force=False).findings == {}
    assert resume_record(bench, force=False) == Record(made_with(bench))
    record = kept(bench)
    assert resume_record(bench, force=False) == record
    assert resume_record(bench, force=True) == record


def test_record_of_another_configuration_is_rejected(bench, monkeypatch):
    kept(bench)
    other = replace(bench, quick=False)
    with pytest.raises(MismatchError, match="another quick"):
        resume_record(other, force=False)
    assert resume_record(other, force=True).findings == {}
    monkeypatch.setattr(records, "software_versions", lambda: {"regtta": "0", "torch": "9", "python": "3"})
    with pytest.raises(MismatchError, match="another python, regtta, torch"):
        resume_record(bench, force=False)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 0, "cases": {}, "made_with": {}}', '{"cases": {"a": {}}}']
)
def test_invalid_file_raises_an_error(bench, text):
    (bench.out / FILE).write_text(text)
    with pytest.raises(InvalidFileError, match="not a record"):
        read(bench.out / FILE)


def test_nan_is_rejected_and_the_old_record_is_kept(bench):
    record = kept(bench)
    with pytest.raises(ValueError, match="JSON"):
        write(record.adding("b", Findings("B", facts=(Fact("x", float("nan")),))), bench.out / FILE)
    assert read(bench.out / FILE) == record
    json.loads((bench.out / FILE).read_text())
