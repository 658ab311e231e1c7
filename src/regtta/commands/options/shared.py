"""Types of options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from regtta.commands.options.parsing import Parser, split_names

Model = Annotated[
    str,
    typer.Option(
        metavar="MODULE:FACTORY",
        help="Function without arguments that returns the model; looked for in this folder too.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="State dict to load: safetensors, or plain weights of torch.save."),
]
Data = Annotated[
    str,
    typer.Option(
        metavar="FILE|MODULE:LOADER",
        help="A .csv, .csv.gz, .parquet or .npz file; or a Python iterable of batches (x, (x, y) or "
        "dicts), or a function that returns one.",
    ),
]
Columns = Annotated[
    tuple[str, ...],
    typer.Option(
        metavar="A,B,C",
        help="Columns of a table that are the inputs, in this order; else all but the target.",
        show_default=False,
    ),
    Parser(split_names),
]
Inputs = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Array in an .npz file (else x), or key of the input in dict batches."),
]
Head = Annotated[
    str | None, typer.Option(metavar="NAME", help="Linear layer whose inputs are the features; else found.")
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Where to run, such as cuda:0.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DataFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of data sets.", show_default="the one that REGTTA_DATA names"),
]
ResultsFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs and the tables.")]
ModelsFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of source models, kept for other tables.", show_default="OUT/models"),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Processes at once.", show_default="1; with --ray, as many as there is room for"
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on all machines of a Ray cluster: auto or HOST:PORT for one that this machine is part of, "
        "ray://HOST:PORT for one elsewhere, local to start one here.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="A smoke run: everything far too small to mean anything.")]
TablesOnly = Annotated[bool, typer.Option("--tables-only", help="Make the tables from the runs that are there.")]
