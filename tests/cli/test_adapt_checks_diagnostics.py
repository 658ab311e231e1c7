import json
from pathlib import Path

import torch

from regtta.cli.adapt_checks import open_diagnostics
from regtta.types import Diagnostics, Step, Verdict


def refuse_constants(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def test_every_line_is_valid_json_for_any_numbers(tmp_path: Path):
    steps = [
        Step(0, torch.zeros(4), Diagnostics(0.5, 2.0, 0.25, Verdict(True))),
        Step(1, torch.zeros(3), Diagnostics(float("nan"), float("inf"), float("-inf"), Verdict(False, "NaN"))),
        Step(2, torch.zeros(1), Diagnostics(None, None, 0.0, Verdict(False, 'a "batch" of 1'))),
    ]
    with open_diagnostics(tmp_path / "steps.jsonl") as writer:
        for step in steps:
            writer.write(step)
    lines = (tmp_path / "steps.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=refuse_constants) for line in lines]
    assert found[0] == {
        "index": 0,
        "samples": 4,
        "excluded": 0,
        "loss": 0.5,
        "gradient_norm": 2.0,
        "displacement": 0.25,
        "learned": True,
        "reason": "",
    }
    assert [found[1][name] for name in ("loss", "gradient_norm", "displacement")] == [None] * 3
    assert (found[2]["samples"], found[2]["reason"]) == (1, 'a "batch" of 1')
