"""Commands that train their own models: the paper's tables, stress tests, the label-shift study and the demo."""

from pathlib import Path
from typing import Annotated

import typer

from regtta.cli import shared_options as shared
from regtta.cli.error_messages import exit_on_interrupt
from regtta.cli.help_examples import help_with_examples
from regtta.cli.typer_signature import takes_options
from regtta_bench.cli.bench_options import ReproduceOptions, StressOptions

app = typer.Typer()


@app.command(
    help=help_with_examples(
        "Run the paper's experiments and show its tables, each number beside the paper's; or run the suite of shifts."
        "\n\nRuns that exist already are not repeated, so a stopped command can be resumed.",
        "reproduce",
    )
)
@takes_options(ReproduceOptions)
def reproduce(
    options: ReproduceOptions,
    *,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Reproduce the paper's tables."""
    from regtta_bench.cli import bench_views as views
    from regtta_bench.cli.progress import show_progress
    from regtta_bench.cli.reproduce import list_experiments, run_experiments
    from regtta_bench.cli.reproduce_shifts import NAME, list_suite, run_shifts

    if show_list:
        views.print_experiments((*list_experiments(), list_suite()))
        return
    with exit_on_interrupt(), show_progress() as listener:
        reports = (run_shifts(options, listener),) if NAME in options.names else run_experiments(options, listener)
    for report in reports:
        views.print_report(report)


@app.command(
    help=help_with_examples(
        "Run methods on streams that are not i.i.d., with guards and without: sorted, in bursts, drifting, mixed.\n\n"
        "NAME is demo, california or svhn-subset. Runs that exist already are not repeated.",
        "stress",
    )
)
@takes_options(StressOptions)
def stress(options: StressOptions) -> None:
    """Run the benchmark on streams that are not i.i.d."""
    from regtta_bench.cli import bench_views as views
    from regtta_bench.cli.progress import show_progress
    from regtta_bench.cli.stress import run_stress

    with exit_on_interrupt(), show_progress() as listener:
        report = run_stress(options, listener)
    views.print_report(report)


@app.command(
    "label-shift",
    help=help_with_examples(
        "Measure how well label shift can be detected without labels.\n\nConstructs thousands of shifts of inputs, "
        "labels and both from held-out source data, and writes ROC tables, verdicts and the effect of adapting.",
        "label-shift",
    ),
)
def label_shift(
    name: Annotated[str, typer.Argument(metavar="NAME", help="demo or california.")] = "demo",
    *,
    out: shared.ResultsFolderOption = Path("regtta-label-shift"),
    data: shared.DataFolderOption = None,
    models: shared.ModelsFolderOption = None,
    source_seeds: Annotated[int, typer.Option(min=2, metavar="N", help="Source models.")] = 6,
    quick: shared.QuickOption = False,
    tables_only: shared.TablesOnlyOption = False,
    force: shared.ForceOption = False,
) -> None:
    """Run the label-shift study."""
    from regtta_bench.cli import bench_views as views
    from regtta_bench.cli.label_shift import LabelShiftOptions, study_label_shift
    from regtta_bench.cli.progress import show_progress

    options = LabelShiftOptions(name, out, data, models, source_seeds, quick, tables_only, force)
    with show_progress() as listener:
        report = study_label_shift(
            options, on_training=listener.on_training, on_message=lambda text: typer.echo(text, err=True)
        )
    views.print_label_shift(report)


@app.command(help=help_with_examples("Train on handwritten digits, degrade them, adapt, and write a report.", "demo"))
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to, new or empty.")] = Path("regtta-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed.")] = 0,
    sources: Annotated[int, typer.Option(min=1, metavar="N", help="Number of source models.")] = 3,
    umap: Annotated[
        bool, typer.Option("--umap", help="Add a UMAP of the features to the report; takes longer.")
    ] = False,
    force: shared.ForceOption = False,
) -> None:
    """Run the demo on handwritten digits."""
    from rich.console import Console

    from regtta.cli.outputs import check_output_folder

    check_output_folder(out, force=force)
    from regtta_bench.demo import run_demo

    run_demo(out=out, seed=seed, sources=sources, umap=umap, console=Console())
