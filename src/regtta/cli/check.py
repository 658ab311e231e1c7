"""``regtta check``: check a model, the first batch of its data and source statistics before a run."""

from regtta.checks import CheckResult, check
from regtta.cli.adapt import BATCH_SIZE
from regtta.cli.adapt_options import CheckOptions
from regtta.cli.data.open_data import extract_data_options, open_data
from regtta.cli.method_table import parse_method
from regtta.cli.shared_options import parse_key
from regtta.cli.user_code import floating_dtype, load_model
from regtta.errors import BatchError, FileError
from regtta.statistics import SourceStatistics


def check_model_and_data(options: CheckOptions) -> CheckResult:
    """Check a model with the first batch of its data, read as ``regtta adapt`` reads it.

    Problems of the model, the batch and the statistics are findings of the result; options that are wrong and data that
    cannot be read raise.
    """
    method = parse_method(options.method, options.settings)
    model = load_model(options.model, options.weights, options.device)
    source: SourceStatistics | str | None = None
    if options.stats is not None:
        try:
            source = SourceStatistics.load(options.stats)
        except FileError:
            source = str(options.stats)  # the check reports it
    data = open_data(
        extract_data_options(options),
        batch_size=BATCH_SIZE,
        dtype=floating_dtype(model),
        source_columns=source.columns if isinstance(source, SourceStatistics) else (),
        model=model,
    )
    batch = next(data.batches(), None)
    if batch is None:
        raise BatchError(f"{options.data} has no rows: there is nothing to check.")
    output = None if options.output is None else parse_key(options.output)
    return check(model, batch.inputs, source, method=method, head=options.head, output=output)
