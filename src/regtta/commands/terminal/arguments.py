"""The options of the commands: what each takes and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from regtta.commands.protocols import PrecisionName, Protocol

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

StatisticsOut = Annotated[Path, typer.Option(metavar="FILE", help="Statistics to write, .safetensors.")]
LeftOut = Annotated[str | None, typer.Option(metavar="NAME", help="The label in the data, left out of the inputs.")]
Gathered = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Gather what this method needs beyond the moments, repeatable; options as NAME:key=value,...",
    ),
]
Branch = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights of the rotation branch, for --method ttt.")]

Statistics = Annotated[Path | None, typer.Option(metavar="FILE", help="Source statistics, for methods that need them.")]
MethodName = Annotated[
    str, typer.Option(metavar="NAME", help="See regtta methods; sums such as tent+ssa, weighted as tent+0.5*ssa.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Option of the method, repeatable; see regtta methods NAME."),
]
ProtocolName = Annotated[
    Protocol, typer.Option(help="online: predict while adapting. offline: adapt on all data, then predict it.")
]
ScoredBy = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Label to score by: column (or columns A,B), array, key of dict batches, or position in "
        "tuple batches (1 for y in (x, y)).",
    ),
]
ShuffleSeed = Annotated[int | None, typer.Option(metavar="N", help="Visit the rows of a file in a random order.")]
PredictionsOut = Annotated[Path | None, typer.Option(metavar="FILE", help="Predictions to write, .csv or .parquet.")]
WeightsOut = Annotated[Path | None, typer.Option(metavar="FILE", help="Adapted state dict to write, .safetensors.")]
DiagnosticsOut = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Log of the steps to write, one JSON object a line.")
]
RecordOut = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Everything about the run to write, .json, for regtta report.")
]
ModelOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Adapted model to write: .pt2 (torch.export), .onnx or .safetensors, with where it comes from.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Keep where the stream stands in this file, .safetensors; goes on from it with --resume."
    ),
]
CheckpointEvery = Annotated[int, typer.Option(min=1, metavar="N", help="Batches between two writes of the checkpoint.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, where there is one.")]
SignalsOut = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Label-free signals and alarms to write as they come, one JSON object a line."),
]
PrometheusOut = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The latest signals to write in Prometheus' text format, .prom.")
]
TensorBoardOut = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder to write the signals' curves into, for TensorBoard.")
]
Precision = Annotated[
    PrecisionName | None,
    typer.Option(help="Arithmetic of the model's passes; float32 unless --fast is given. Weights stay as they are."),
]
Fast = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="All that makes a GPU quicker (regtta.FAST): bfloat16 unless --precision says otherwise, channels last, "
        "compiled, captured in a CUDA graph. What cannot be done is left out, and said.",
    ),
]
Safe = Annotated[
    bool,
    typer.Option(
        "--safe",
        help="Guard the stream as in production (regtta.SAFE): learn only from a shift that is there, that another mix "
        "of labels does not explain, in a steady stream; go back when something runs away.",
    ),
]
AllowMismatch = Annotated[
    bool, typer.Option("--allow-mismatch", help="Go on with statistics of another model or head.")
]

DataFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of data sets.", show_default="the one that REGTTA_DATA names"),
]
ResultsFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs and the tables.")]
ModelsFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of source models, kept for other tables.", show_default="OUT/models"),
]
SourceSeeds = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Source models.", show_default="1, 3 or 5, by what training costs"),
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Adaptation seeds on each source model.", show_default="3; 1 with --quick"),
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
Only = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Keep to this data set, repeatable.")]
MoreMethods = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME|MODULE:NAME",
        help="A row more in tables by method, repeatable; options as NAME:key=value,...",
    ),
]
StartWeights = Annotated[
    list[str] | None,
    typer.Option(metavar="MODEL=FILE", help="ImageNet's weights to start resnet50 or vit_b16 from, repeatable."),
]
Genders = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Whom Biwi's folders show.", show_default="DATA/biwi/genders.json")
]
Quick = Annotated[bool, typer.Option("--quick", help="A smoke run: everything far too small to mean anything.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch data sets that are missing, where that is possible.")]
TablesOnly = Annotated[bool, typer.Option("--tables-only", help="Make the tables from the runs that are there.")]

Kinds = Annotated[
    str, typer.Option(metavar="A,B,C", help="Kinds of streams.", show_default="all; iid,sorted with --quick")
]
Arms = Annotated[str, typer.Option(metavar="A,B,C", help="Methods beside Source.", show_default="all")]
Parts = Annotated[str, typer.Option(metavar="A,B,C", help="Shifts.", show_default="all; the first with --quick")]
BatchSizes = Annotated[
    str, typer.Option(metavar="A,B,C", help="Samples a step.", show_default="1,8,64; 64 with --quick")
]
SourceModels = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Source models.", show_default="3; 1 with --quick")
]
GateToo = Annotated[
    bool | None,
    typer.Option("--gate/--no-gate", help="Try the gate on clean data too.", show_default="yes; no with --quick"),
]
GateBatches = Annotated[int, typer.Option(min=1, metavar="N", help="Clean batches that the gate is tried on.")]
QuickStress = Annotated[
    bool, typer.Option("--quick", help="A smoke run: one source model, one shift, two kinds, batches of 64, no gate.")
]
