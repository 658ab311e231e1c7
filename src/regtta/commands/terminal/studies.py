"""Commands that train models of their own and study them: the paper's tables, streams, label shift, the demo."""

from pathlib import Path
from typing import Annotated

import typer

from regtta.commands.terminal import arguments
from regtta.commands.terminal.complaints import stoppable
from regtta.commands.terminal.examples import help_with_examples

app = typer.Typer()


@app.command(
    help=help_with_examples(
        "Run the paper's experiments and show its tables, each number beside the paper's.\n\nRuns that are there "
        "already are not made again, so that a stopped command goes on where it was.",
        "reproduce",
    )
)
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Experiments; see --list.")] = None,
    *,
    list_them: Annotated[bool, typer.Option("--list", help="Name the experiments.")] = False,
    data: arguments.DataFolder = None,
    out: arguments.ResultsFolder = Path("regtta-results"),
    models: arguments.ModelsFolder = None,
    source_seeds: arguments.SourceSeeds = None,
    seeds: arguments.Seeds = None,
    jobs: arguments.Jobs = None,
    ray: arguments.Ray = None,
    device: arguments.Device = None,
    only: arguments.Only = None,
    method: arguments.MoreMethods = None,
    weights: arguments.StartWeights = None,
    genders: arguments.Genders = None,
    quick: arguments.Quick = False,
    download: arguments.Download = False,
    tables_only: arguments.TablesOnly = False,
) -> None:
    """Reproduce the paper's tables."""
    from regtta.commands.reproduce import ReproduceOptions, list_experiments, model_files, reproduce
    from regtta.commands.terminal import show
    from regtta.commands.terminal.sweeping import told_in_terminal

    if list_them:
        show.experiments(list_experiments())
        return
    options = ReproduceOptions(
        names=tuple(names or ()),
        out=out,
        data=data,
        models=models,
        source_seeds=source_seeds,
        seeds=seeds,
        jobs=jobs,
        ray=ray,
        device=device,
        only=tuple(only or ()),
        methods=tuple(method or ()),
        weights=model_files(weights or ()),
        genders=genders,
        quick=quick,
        download=download,
        tables_only=tables_only,
    )
    with stoppable(), told_in_terminal() as listener:
        done = reproduce(options, listener)
    for report in done:
        show.reproduced(report)


@app.command(
    help=help_with_examples(
        "Run methods on streams that are not i.i.d., with guards and without: sorted, in bursts, drifting, mixed.\n\n"
        "NAME is demo, california or svhn-subset. Runs that are there already are not made again.",
        "stress",
    )
)
def stress(
    name: Annotated[str, typer.Argument(metavar="NAME", help="demo, california or svhn-subset.")],
    *,
    kinds: arguments.Kinds = "",
    methods: arguments.Arms = "",
    parts: arguments.Parts = "",
    batch_sizes: arguments.BatchSizes = "",
    source_models: arguments.SourceModels = None,
    gate: arguments.GateToo = None,
    gate_batches: arguments.GateBatches = 10_000,
    jobs: arguments.Jobs = None,
    ray: arguments.Ray = None,
    device: arguments.Device = None,
    data: arguments.DataFolder = None,
    models: arguments.ModelsFolder = None,
    out: arguments.ResultsFolder = Path("regtta-stress"),
    quick: arguments.QuickStress = False,
    tables_only: arguments.TablesOnly = False,
) -> None:
    """Run the benchmark of streams that are not i.i.d."""
    from regtta.commands.data.opening import split_names
    from regtta.commands.stress import StressOptions, numbers, stress
    from regtta.commands.terminal import show
    from regtta.commands.terminal.sweeping import told_in_terminal

    options = StressOptions(
        name=name,
        out=out,
        kinds=split_names(kinds),
        methods=split_names(methods),
        parts=split_names(parts),
        batch_sizes=numbers(batch_sizes),
        source_models=source_models,
        gate=gate,
        gate_batches=gate_batches,
        jobs=jobs,
        ray=ray,
        device=device,
        data=data,
        models=models,
        quick=quick,
        tables_only=tables_only,
    )
    with stoppable(), told_in_terminal() as listener:
        report = stress(options, listener)
    show.reproduced(report)


@app.command(
    "label-shift",
    help=help_with_examples(
        "Measure what can be told about moved labels without labels.\n\nConstructs thousands of shifts of inputs, "
        "labels and both from held-out source data, and writes ROC tables, verdicts and what adapting does there.",
        "label-shift",
    ),
)
def label_shift(
    name: Annotated[str, typer.Argument(metavar="NAME", help="demo or california.")] = "demo",
    *,
    out: arguments.ResultsFolder = Path("regtta-label-shift"),
    data: arguments.DataFolder = None,
    models: arguments.ModelsFolder = None,
    source_seeds: Annotated[int, typer.Option(min=2, metavar="N", help="Source models.")] = 6,
    quick: arguments.Quick = False,
    tables_only: arguments.TablesOnly = False,
    force: arguments.Force = False,
) -> None:
    """Study label shift."""
    from regtta.commands.label_shift import LabelShiftOptions, study_label_shift
    from regtta.commands.terminal import show
    from regtta.commands.terminal.sweeping import told_in_terminal

    options = LabelShiftOptions(name, out, data, models, source_seeds, quick, tables_only, force)
    with told_in_terminal() as listener:
        report = study_label_shift(options, training=listener.training, told=lambda text: typer.echo(text, err=True))
    show.label_shift(report)


@app.command(help=help_with_examples("Train on handwritten digits, degrade them, adapt, and write a report.", "demo"))
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to, new or empty.")] = Path("regtta-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Everything random follows from it.")] = 0,
    sources: Annotated[int, typer.Option(min=1, metavar="N", help="How many source models.")] = 3,
    umap: Annotated[bool, typer.Option("--umap", help="A UMAP of the features in the report; takes longer.")] = False,
    force: arguments.Force = False,
) -> None:
    """Show what adaptation does."""
    from rich.console import Console

    from regtta.commands.outputs import check_folder

    check_folder(out, force=force)
    from regtta.experiments.demo import run_demo

    run_demo(out=out, seed=seed, sources=sources, umap=umap, console=Console())
