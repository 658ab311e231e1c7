"""Types of options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from regtta.commands.options.parsing import Parser, split_names

Model = Annotated[
    str,
    typer.Option(
        metavar="MODULE:FACTORY",
        help="Function without arguments that returns the model; also searched for in the current folder.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="State dict to load: safetensors, or a plain state dict saved by torch.save."),
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
        help="Input columns of a table, in this order; default: all but the target.",
        show_default=False,
    ),
    Parser(split_names),
]
Inputs = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Array in an .npz file (default: x), or key of the input in dict batches."),
]
Head = Annotated[
    str | None, typer.Option(metavar="NAME", help="Linear layer whose inputs are the features; default: detected.")
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Device to run on, such as cuda:0.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DataFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of data sets.", show_default="the folder in REGTTA_DATA"),
]
ResultsFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs and the tables.")]
ModelsFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of source models, reused by other tables.", show_default="OUT/models"),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Parallel processes.",
        show_default="1; with --ray, as many as the cluster has room for",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on all machines of a Ray cluster: auto or HOST:PORT for a cluster that this machine is part of, "
        "ray://HOST:PORT for a remote one, local to start one here.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Smoke run: everything is too small to be a result.")]
TablesOnly = Annotated[bool, typer.Option("--tables-only", help="Only write the tables, from the runs that exist.")]
