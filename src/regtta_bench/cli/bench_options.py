"""Options of ``regtta reproduce`` and ``regtta stress``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regtta.cli import shared_options as shared
from regtta.cli.shared_options import TextParser, split_integers, split_names
from regtta.errors import OptionError


def parse_seed_range(text: str) -> range | None:
    """Parse ``"A:B"`` into the seeds A to B−1; None if the text is empty.

    Example:
        >>> parse_seed_range("1:3")
        range(1, 3)
    """
    if not text:
        return None
    first, colon, last = text.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise OptionError(f"Expected --source-seed-range A:B with A < B, such as 0:1 or 1:3, found {text!r}.")
    return range(int(first), int(last))


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Options of ``regtta reproduce``, in the order and with the meaning that its help gives them."""

    names: Annotated[tuple[str, ...], typer.Argument(metavar="NAME...", help="Experiments; see --list.")] = ()
    data: shared.DataFolderOption = None
    out: shared.ResultsFolderOption = Path("regtta-results")
    models: shared.ModelsFolderOption = None
    source_seeds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Source models.", show_default="1, 3 or 5, by the cost of training"),
    ] = None
    source_seed_range: Annotated[
        range | None,
        typer.Option(
            metavar="A:B", help="Only source models A to B-1 of those by default, such as 1:2.", show_default="all"
        ),
        TextParser(parse_seed_range),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Adaptation seeds on each source model.",
            show_default="3; 1 for shifts and with --quick",
        ),
    ] = None
    jobs: shared.JobsOption = None
    ray: shared.RayOption = None
    device: shared.DeviceOption = None
    only: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="NAME", help="Restrict to this data set, or to this shift or group of shifts, repeatable."
        ),
    ] = ()
    join: Annotated[
        tuple[Path, ...],
        typer.Option(metavar="FILE", help="Add the runs of another runs.jsonl to those in --out, repeatable."),
    ] = ()
    methods: Annotated[
        tuple[str, ...],
        typer.Option(
            "--method",
            metavar="NAME|MODULE:NAME",
            help="Additional row in tables by method, repeatable; options as NAME:key=value,...",
        ),
    ] = ()
    weights: Annotated[
        tuple[str, ...],
        typer.Option(metavar="MODEL=FILE", help="ImageNet's weights to start resnet50 or vit_b16 from, repeatable."),
    ] = ()
    genders: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Gender of the person in each folder of Biwi.", show_default="DATA/biwi/genders.json"
        ),
    ] = None
    quick: shared.QuickOption = False
    download: Annotated[bool, typer.Option("--download", help="Download missing data sets where possible.")] = False
    tables_only: shared.TablesOnlyOption = False


@dataclass(frozen=True, kw_only=True)
class StressOptions:
    """Options of ``regtta stress``, in the order and with the meaning that its help gives them.

    None or an empty tuple selects everything, or a small part of it with ``quick``.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="demo, california or svhn-subset.")]
    kinds: Annotated[
        tuple[str, ...],
        typer.Option(metavar="A,B,C", help="Kinds of streams.", show_default="all; iid,sorted with --quick"),
        TextParser(split_names),
    ] = ()
    methods: Annotated[
        tuple[str, ...],
        typer.Option(metavar="A,B,C", help="Methods besides Source.", show_default="all"),
        TextParser(split_names),
    ] = ()
    parts: Annotated[
        tuple[str, ...],
        typer.Option(metavar="A,B,C", help="Shifts.", show_default="all; the first with --quick"),
        TextParser(split_names),
    ] = ()
    batch_sizes: Annotated[
        tuple[int, ...],
        typer.Option(metavar="A,B,C", help="Samples per step.", show_default="1,8,64; 64 with --quick"),
        TextParser(split_integers),
    ] = ()
    source_models: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Source models.", show_default="3; 1 with --quick")
    ] = None
    gate: Annotated[
        bool | None,
        typer.Option("--gate/--no-gate", help="Also test the gate on clean data.", show_default="yes; no with --quick"),
    ] = None
    gate_batches: Annotated[int, typer.Option(min=1, metavar="N", help="Clean batches to test the gate on.")] = 10_000
    jobs: shared.JobsOption = None
    ray: shared.RayOption = None
    device: shared.DeviceOption = None
    data: shared.DataFolderOption = None
    models: shared.ModelsFolderOption = None
    out: shared.ResultsFolderOption = Path("regtta-stress")
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Smoke run: one source model, one shift, two kinds, batches of 64, no gate."),
    ] = False
    tables_only: shared.TablesOnlyOption = False
