"""Options of ``regtta collect``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regtta.commands.options import shared


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """Options of ``regtta collect``, in the order and with the meaning that its help gives them."""

    model: shared.Model
    data: shared.Data
    out: Annotated[Path, typer.Option(metavar="FILE", help="Statistics to write, .safetensors.")]
    weights: shared.Weights = None
    columns: shared.Columns = ()
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Label in the data, excluded from the inputs.")] = (
        None
    )
    inputs: shared.Inputs = None
    head: shared.Head = None
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows per batch; a loader has its own.", show_default="256")
    ] = None
    device: shared.Device = None
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
    force: shared.Force = False
