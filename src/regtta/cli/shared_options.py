"""Types of options that several commands share, and parsing of their texts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regtta.errors import OptionError


@dataclass(frozen=True)
class TextParser:
    """Marks a field that is typed as one text.

    Attributes:
        parse: converts the text to the value of the field.
    """

    parse: Callable[[str], object]


def parse_key(text: str) -> str | int:
    """Return the position that ``text`` names, or the text itself as a key.

    Example:
        >>> parse_key("1"), parse_key("logits")
        (1, 'logits')
    """
    return int(text) if text.lstrip("-").isdecimal() else text


def parse_selection(text: str | None) -> str | int | list[str | int] | None:
    """Return the inputs that ``text`` selects: one key or position, or a list of them.

    Example:
        >>> parse_selection("ids,mask"), parse_selection("0")
        (['ids', 'mask'], 0)
    """
    if text is None:
        return None
    keys = [parse_key(part) for part in split_names(text)]
    return keys[0] if len(keys) == 1 else keys


def split_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names.

    Example:
        >>> split_names("age, height")
        ('age', 'height')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def split_integers(text: str) -> tuple[int, ...]:
    """Parse a comma-separated list of integers, dropping duplicates.

    Example:
        >>> split_integers("1, 8")
        (1, 8)
    """
    try:
        return tuple(dict.fromkeys(int(word) for word in split_names(text)))
    except ValueError as error:
        raise OptionError(f"Expected whole numbers such as 1,8,64, found {text!r}.") from error


def split_numbers(text: str) -> tuple[float, ...]:
    """Parse a comma-separated list of numbers.

    Example:
        >>> split_numbers("0.5, 1")
        (0.5, 1.0)
    """
    try:
        return tuple(float(word) for word in split_names(text))
    except ValueError as error:
        raise OptionError(f"Expected numbers such as 0.5,0.5,0.5, found {text!r}.") from error


ModelOption = Annotated[
    str,
    typer.Option(
        metavar="MODULE:FACTORY",
        help="Function without arguments that returns the model; also searched for in the current folder.",
    ),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="State dict to load: safetensors, or a plain state dict saved by torch.save."),
]
DataOption = Annotated[
    str,
    typer.Option(
        metavar="FILE|FOLDER|MODULE:LOADER",
        help="A .csv, .csv.gz, .parquet or .npz file; a folder of images; or a Python iterable of batches (x, (x, y) "
        "or dicts), or a function that returns one.",
    ),
]
StatsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Source statistics, for methods that need them.")
]
MethodOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto is recommended: it decides whether to adapt. See regtta methods; sums as tent+0.5*ssa.",
    ),
]
SettingsOption = Annotated[
    tuple[str, ...],
    typer.Option("--set", metavar="KEY=VALUE", help="Option of the method, repeatable; see regtta methods NAME."),
]
ColumnsOption = Annotated[
    tuple[str, ...],
    typer.Option(
        metavar="A,B,C",
        help="Input columns of a table, in this order; default: all but the target; in adapt, those of --stats.",
        show_default=False,
    ),
    TextParser(split_names),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Array in an .npz file (default: x), key or position of the input in the batches of a loader (several "
        "as A,B), or column of file names in the labels of images (default: the first).",
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Key or position of the prediction in what the model returns; default: detected."
    ),
]
ImageSizeOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Size of the images of a folder: the shorter side is resized to N pixels (bicubic), then the centre N×N "
        "is cropped.",
    ),
]
ImageMeanOption = Annotated[
    tuple[float, ...],
    typer.Option(
        metavar="R,G,B",
        help="Mean subtracted from images in [0, 1].",
        show_default="0.485,0.456,0.406, of ImageNet",
    ),
    TextParser(split_numbers),
]
ImageStdOption = Annotated[
    tuple[float, ...],
    typer.Option(
        metavar="R,G,B",
        help="Standard deviation that images are divided by.",
        show_default="0.229,0.224,0.225, of ImageNet",
    ),
    TextParser(split_numbers),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Labels of images, .csv: a column of paths relative to the folder, and the columns of --target.",
        show_default="labels.csv in the folder",
    ),
]
HeadOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Linear layer whose inputs are the features, such as fc or score[last]; default: detected."
    ),
]
DeviceOption = Annotated[str | None, typer.Option(metavar="NAME", help="Device to run on, such as cuda:0.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DataFolderOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of data sets.", show_default="the folder in REGTTA_DATA"),
]
ResultsFolderOption = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs and the tables.")]
ModelsFolderOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of source models, reused by other tables.", show_default="OUT/models"),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Parallel processes.",
        show_default="1; with --ray, as many as the cluster has room for",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on all machines of a Ray cluster: auto or HOST:PORT for a cluster that this machine is part of, "
        "ray://HOST:PORT for a remote one, local to start one here.",
    ),
]
QuickOption = Annotated[bool, typer.Option("--quick", help="Smoke run: everything is too small to be a result.")]
TablesOnlyOption = Annotated[
    bool, typer.Option("--tables-only", help="Only write the tables, from the runs that exist.")
]
