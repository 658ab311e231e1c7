"""Writes speed.md from what was measured: ``make docs``."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).with_name("speed.md")
RESULTS = Path("results") / "speed"
FOLDERS = {"On a GPU": RESULTS / "h200", "On a CPU": RESULTS / "cpu"}
FIGURES = {
    "variants.png": "the step in every way",
    "profile.png": "where the time goes",
    "curves.png": "how cost grows with batch size, k, features, outputs and samples",
}
INTRODUCTION = """\
# Speed

Made by `make docs`: the prose is in `docs/make_speed.py`, and every number comes from a file of measurements.

[Adapting](adapting.md#how-fast-and-in-which-precision) says what `execution=` does. This page says what each way is worth,
where the time goes, and [how that is measured](#how-it-is-measured).
"""
METHOD = """\
## How it is measured

```
make bench                                                      # on this machine, into regtta-bench/
python -m benchmarks.speed --out FOLDER --list                  # the names of all cases
python -m benchmarks.speed --out FOLDER --cases step,serving    # some of them
python -m benchmarks.speed --out FOLDER --quick                 # a smoke run of seconds
python -m benchmarks.speed --out FOLDER --cases precision --data DATA --models FOLDER   # scores on real data
```

Every case is written to `speed.json` as soon as it is done. A run that was broken off, or that came to its `--limit` (400
seconds, after which no case begins), goes on where it was when the same command is given again; `--force` measures anew.
`speed.md` and the figures are made from `speed.json` alone.

- **What is compared takes turns**: all ways of doing one thing are sampled once a round, in another order each round, and
  ratios are of times of the same round. What else the machine does then meets all of them alike.
- **Ratios, with their spread**: medians, and quartiles in brackets. "Times as fast" is better when larger, "times the time"
  when smaller.
- **Absolute times are those of a GPU**; on a CPU, which other work shares, there are ratios alone.
- **The straightforward step** that regtta's is measured against is SSA written down from the paper
  (`benchmarks/speed/straightforward.py`): float32, gradients of all parameters, torch's Adam. Tests check that it computes
  the same losses and predictions. It has no guards, cannot take a step back and reads nothing from the device. On a GPU torch
  by default lets convolutions round to TF32, so it is measured with that and without.
- **The models** have random weights, since no time depends on them, and statistics of their own inputs. The scores of each
  precision are of trained models.
"""
MISSING = (
    "Nothing has been measured here yet: `python -m benchmarks.speed --out {}`, then `make docs`, fills this part.\n"
)
NOTES = {
    "What a step costs": "Times as fast as the straightforward step with torch's defaults, where nothing else is said. On a "
    "GPU these let convolutions round to TF32; float32 throughout is what the paper's words ask for.",
    "What being ready to adapt costs": "Times the time of a bare forward pass in the same arithmetic, on a stream without a "
    "shift. A guard's look at 64 samples costs a few tenths of a millisecond, some thirty calls of torch on few numbers each, "
    "and more where there are more samples: little beside a network for images, more than the whole pass of a small one for "
    "tables.",
    "What collecting costs": "A whole pass, with the spectrum at its end, whose share falls as samples grow in number; so do "
    "those of copying the model and of its fingerprint. What is left is the features' product with themselves, in float64: "
    "in float32 directions without any variance would be given one by rounding, and SSA divides by it.",
    "Where the time goes": "Shares of the time that kernels took, by torch's profiler.",
    "What the floor is": "What a step must move and compute at the least, with everything fused that can be "
    "(`benchmarks/speed/traffic.py` says what is counted), over what this GPU moves and computes in a second.",
    "What precision changes": "Offline R² of SSA over the same streams, and how fast such steps are.",
}


def page(root: Path = ROOT) -> str:
    """The page as the measurements in the folders of ``root`` give it."""
    parts = [f"## {title}\n\n{measured(root, folder)}" for title, folder in FOLDERS.items()]
    return "\n".join([INTRODUCTION, *parts, METHOD])


def measured(root: Path, folder: Path) -> str:
    """All that was measured and is kept in ``folder``."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.speed import record as records
    from benchmarks.speed import summary

    path = root / folder / records.FILE
    if not path.exists():
        return MISSING.format(folder.as_posix())
    record = records.read(path)
    about = f"Measured on {summary.device_of(record)}; all of it is in [speed.md](../{folder.as_posix()}/speed.md).\n"
    found = {title: section(record) for title, section in summary.SECTIONS.items()}
    sections = [f"### {title}\n\n{NOTES[title]}\n\n{text}\n" for title, text in found.items() if text]
    figures = [
        f"![{title}](../{folder.as_posix()}/{name})\n"
        for name, title in FIGURES.items()
        if (path.parent / name).exists()
    ]
    return "\n".join([about, *sections, *figures])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
