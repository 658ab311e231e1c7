"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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
    str,
    typer.Option(
        metavar="A,B,C",
        help="Columns of a table that are the inputs, in this order; else all but the target.",
        show_default=False,
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Array in an .npz file (else x), or key of the input in dict batches."),
]
Head = Annotated[
    str | None, typer.Option(metavar="NAME", help="Linear layer whose inputs are the features; else found.")
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Where to run, such as cuda:0.")]
CollectBatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, metavar="N", help="Rows a batch; a loader brings its own.", show_default="256"),
]
AdaptBatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, metavar="N", help="Rows a batch; a loader brings its own.", show_default="64"),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
