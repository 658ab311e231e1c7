"""Options of ``regtta reproduce``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regtta.commands.options import shared


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Options of ``regtta reproduce``, in the order and with the meaning that its help gives them."""

    names: Annotated[tuple[str, ...], typer.Argument(metavar="NAME...", help="Experiments; see --list.")] = ()
    data: shared.DataFolder = None
    out: shared.ResultsFolder = Path("regtta-results")
    models: shared.ModelsFolder = None
    source_seeds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Source models.", show_default="1, 3 or 5, by the cost of training"),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Adaptation seeds on each source model.", show_default="3; 1 with --quick"
        ),
    ] = None
    jobs: shared.Jobs = None
    ray: shared.Ray = None
    device: shared.Device = None
    only: Annotated[tuple[str, ...], typer.Option(metavar="NAME", help="Restrict to this data set, repeatable.")] = ()
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
    quick: shared.Quick = False
    download: Annotated[bool, typer.Option("--download", help="Download missing data sets where possible.")] = False
    tables_only: shared.TablesOnly = False
