"""Options of ``regtta adapt``, ``regtta collect``, ``regtta check`` and ``regtta select``."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regtta.cli import shared_options as shared


class Protocol(StrEnum):
    """Evaluation protocol: predictions made while adapting (online) or by the adapted model (offline)."""

    online = "online"
    offline = "offline"


class PrecisionName(StrEnum):
    """Precision of the forward passes, see :class:`regtta.Execution`."""

    float32 = "float32"
    tf32 = "tf32"
    bfloat16 = "bfloat16"


class ServedModel(StrEnum):
    """Model whose predictions are written, see :class:`regtta.Adapter`."""

    adapted = "adapted"
    source = "source"


class LossName(StrEnum):
    """Loss by which candidates are compared, see :func:`regtta.select`."""

    squared = "squared"
    absolute = "absolute"


class CorrectionName(StrEnum):
    """Correction of the outputs, see :func:`regtta.select`."""

    none = "none"
    offset = "offset"
    affine = "affine"


if TYPE_CHECKING:
    from regtta.cli.adapt_report import MonitorFiles
    from regtta.execution import Execution

# Options that name a file to write.
OUTPUT_FILE_OPTIONS = ("predictions", "adapted_weights", "diagnostics", "record", "export", "monitor", "prometheus")


@dataclass(frozen=True, kw_only=True)
class AdaptOptions:
    """Options of ``regtta adapt``, in the order and with the meaning that its help gives them."""

    model: shared.ModelOption
    data: shared.DataOption
    weights: shared.WeightsOption = None
    stats: shared.StatsOption = None
    method: shared.MethodOption = "ssa"
    settings: shared.SettingsOption = ()
    protocol: Annotated[
        Protocol, typer.Option(help="online: predict while adapting. offline: adapt on all data, then predict it.")
    ] = Protocol.online
    columns: shared.ColumnsOption = ()
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Label to score by: column (or columns A,B) of a table or of the labels of images, array, key of "
            "dict batches, or position in tuple batches (1 for y in (x, y)).",
        ),
    ] = None
    inputs: shared.InputsOption = None
    output: shared.OutputOption = None
    image_size: shared.ImageSizeOption = None
    image_mean: shared.ImageMeanOption = ()
    image_std: shared.ImageStdOption = ()
    labels: shared.LabelsOption = None
    head: shared.HeadOption = None
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows per batch; a loader has its own.", show_default="64")
    ] = None
    device: shared.DeviceOption = None
    shuffle_seed: Annotated[
        int | None, typer.Option(metavar="N", help="Visit the rows of a file in a random order.")
    ] = None
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Predictions to write, .csv or .parquet.")
    ] = None
    adapted_weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Adapted state dict to write, .safetensors.")
    ] = None
    diagnostics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Log of the steps to write, one JSON object per line.")
    ] = None
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record of the run to write, .json, for regtta report.")
    ] = None
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Adapted model to write: .pt2 (torch.export), .onnx or .safetensors, with its provenance.",
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Checkpoint of the stream to write, .safetensors; resume from it with --resume.",
        ),
    ] = None
    checkpoint_every: Annotated[int, typer.Option(min=1, metavar="N", help="Batches between two checkpoints.")] = 50
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint if it exists.")] = False
    monitor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Label-free signals and alarms to write during the run, one JSON object per line."
        ),
    ] = None
    prometheus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Latest signals to write in Prometheus' text format, .prom.")
    ] = None
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write the signals to, for TensorBoard.")
    ] = None
    safe: Annotated[
        bool,
        typer.Option(
            "--safe",
            help="Use the guards for production (regtta.SAFE): learn only if a shift is detected, if label shift does "
            "not explain it, and if the stream is stationary; roll back on divergence.",
        ),
    ] = False
    serve: Annotated[
        ServedModel,
        typer.Option(
            help="Whose predictions to write and to score. source: shadow mode, the model as trained, while a copy "
            "adapts; diagnostics, monitor, record and exported models are those of the copy."
        ),
    ] = ServedModel.adapted
    precision: Annotated[
        PrecisionName | None,
        typer.Option(
            help="Precision of forward and backward passes; float32 unless --fast is given. Weights keep their dtype."
        ),
    ] = None
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Fast execution on a GPU (regtta.FAST): bfloat16 unless --precision is given, channels last, "
            "torch.compile, CUDA graphs. Whatever is not possible is skipped with a warning.",
        ),
    ] = False
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Accept statistics of another model or head.")
    ] = False
    force: shared.ForceOption = False

    @property
    def outputs(self) -> dict[str, Path | None]:
        """Files to write, by option."""
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in OUTPUT_FILE_OPTIONS}

    @property
    def execution(self) -> "Execution":
        """Execution settings of the model, from ``--fast`` and ``--precision``."""
        from regtta.execution import FAST, PLAIN

        default = FAST if self.fast else PLAIN
        return default if self.precision is None else replace(default, precision=self.precision.value)

    @property
    def monitor_files(self) -> "MonitorFiles":
        """Files that the monitor writes."""
        from regtta.cli.adapt_report import MonitorFiles

        return MonitorFiles(self.monitor, self.prometheus, self.tensorboard)


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """Options of ``regtta collect``, in the order and with the meaning that its help gives them."""

    model: shared.ModelOption
    data: shared.DataOption
    out: Annotated[Path, typer.Option(metavar="FILE", help="Statistics to write, .safetensors.")]
    weights: shared.WeightsOption = None
    columns: shared.ColumnsOption = ()
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Label in the data, excluded from the inputs.")] = (
        None
    )
    inputs: shared.InputsOption = None
    output: shared.OutputOption = None
    image_size: shared.ImageSizeOption = None
    image_mean: shared.ImageMeanOption = ()
    image_std: shared.ImageStdOption = ()
    labels: shared.LabelsOption = None
    head: shared.HeadOption = None
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows per batch; a loader has its own.", show_default="256")
    ] = None
    device: shared.DeviceOption = None
    methods: Annotated[
        tuple[str, ...],
        typer.Option(
            "--method",
            metavar="NAME",
            help="Also collect the statistics that this method needs, repeatable; options as NAME:key=value,...",
        ),
    ] = ()
    branch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights of the rotation branch, for --method ttt.")
    ] = None
    force: shared.ForceOption = False


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of ``regtta check``, in the order and with the meaning that its help gives them."""

    model: shared.ModelOption
    data: shared.DataOption
    weights: shared.WeightsOption = None
    stats: shared.StatsOption = None
    method: shared.MethodOption = "ssa"
    settings: shared.SettingsOption = ()
    columns: shared.ColumnsOption = ()
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Label in the data, excluded from the inputs.")] = (
        None
    )
    inputs: shared.InputsOption = None
    output: shared.OutputOption = None
    image_size: shared.ImageSizeOption = None
    image_mean: shared.ImageMeanOption = ()
    image_std: shared.ImageStdOption = ()
    labels: shared.LabelsOption = None
    head: shared.HeadOption = None
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows per batch; a loader has its own.", show_default="64")
    ] = None
    device: shared.DeviceOption = None


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """Options of ``regtta select``, in the order and with the meaning that its help gives them."""

    model: shared.ModelOption
    labelled: Annotated[
        str,
        typer.Option(
            metavar="FILE|FOLDER|MODULE:LOADER",
            help="Labelled target samples, at least 8, better 16 to 256 drawn at random; kinds of data as for --data.",
        ),
    ]
    target: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Label in --labelled: column (or columns A,B) of a table or of the labels of images, array, key of "
            "dict batches, or position in tuple batches (1 for y in (x, y)).",
        ),
    ]
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|FOLDER|MODULE:LOADER",
            help="Unlabelled target data that the candidates adapt to: a .csv, .csv.gz, .parquet or .npz file; a "
            "folder of images; or a Python iterable of batches, or a function that returns one. Labels are ignored.",
            show_default="the inputs of --labelled",
        ),
    ] = None
    weights: shared.WeightsOption = None
    stats: shared.StatsOption = None
    candidates: Annotated[
        tuple[str, ...],
        typer.Option(
            "--candidate",
            metavar="NAME[:KEY=VALUE,...]",
            help="Method to compare with the unadapted model, repeatable, simple ones first; see regtta methods.",
            show_default="bn_adapt, ssa and others that fit",
        ),
    ] = ()
    loss: Annotated[LossName, typer.Option(help="Errors to compare by.")] = LossName.squared
    correct: Annotated[
        CorrectionName,
        typer.Option(help="Also compare candidates with offset, or offset and scale, of their outputs corrected."),
    ] = CorrectionName.none
    confidence: Annotated[
        float, typer.Option(metavar="P", help="Confidence of the intervals, all of them together.")
    ] = 0.95
    columns: shared.ColumnsOption = ()
    inputs: shared.InputsOption = None
    output: shared.OutputOption = None
    image_size: shared.ImageSizeOption = None
    image_mean: shared.ImageMeanOption = ()
    image_std: shared.ImageStdOption = ()
    labels: shared.LabelsOption = None
    head: shared.HeadOption = None
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows per batch; a loader has its own.", show_default="64")
    ] = None
    device: shared.DeviceOption = None
