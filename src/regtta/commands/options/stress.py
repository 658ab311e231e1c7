"""Options of ``regtta stress``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regtta.commands.options import shared
from regtta.commands.options.parsing import Parser, numbers, split_names


@dataclass(frozen=True, kw_only=True)
class StressOptions:
    """Options of ``regtta stress``, in the order and with the meaning that its help gives them.

    None or an empty tuple selects everything, or a small part of it with ``quick``.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="demo, california or svhn-subset.")]
    kinds: Annotated[
        tuple[str, ...],
        typer.Option(metavar="A,B,C", help="Kinds of streams.", show_default="all; iid,sorted with --quick"),
        Parser(split_names),
    ] = ()
    methods: Annotated[
        tuple[str, ...],
        typer.Option(metavar="A,B,C", help="Methods besides Source.", show_default="all"),
        Parser(split_names),
    ] = ()
    parts: Annotated[
        tuple[str, ...],
        typer.Option(metavar="A,B,C", help="Shifts.", show_default="all; the first with --quick"),
        Parser(split_names),
    ] = ()
    batch_sizes: Annotated[
        tuple[int, ...],
        typer.Option(metavar="A,B,C", help="Samples per step.", show_default="1,8,64; 64 with --quick"),
        Parser(numbers),
    ] = ()
    source_models: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Source models.", show_default="3; 1 with --quick")
    ] = None
    gate: Annotated[
        bool | None,
        typer.Option("--gate/--no-gate", help="Also test the gate on clean data.", show_default="yes; no with --quick"),
    ] = None
    gate_batches: Annotated[int, typer.Option(min=1, metavar="N", help="Clean batches to test the gate on.")] = 10_000
    jobs: shared.Jobs = None
    ray: shared.Ray = None
    device: shared.Device = None
    data: shared.DataFolder = None
    models: shared.ModelsFolder = None
    out: shared.ResultsFolder = Path("regtta-stress")
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Smoke run: one source model, one shift, two kinds, batches of 64, no gate."),
    ] = False
    tables_only: shared.TablesOnly = False
