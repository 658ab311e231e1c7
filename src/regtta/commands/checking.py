"""What must hold of an adaptation: of its options before any work is done, of its data on the way."""

from regtta.commands.data.batches import Data
from regtta.commands.data.opening import data_options
from regtta.commands.exports import ModelFiles
from regtta.commands.options.adapt import AdaptOptions
from regtta.commands.outputs import check_outputs, check_suffix
from regtta.commands.passes import Tally
from regtta.commands.predictions import PREDICTION_SUFFIXES
from regtta.commands.protocols import Protocol
from regtta.commands.resuming import check_resumable
from regtta.errors import BatchError, OptionError
from regtta.methods import Method


def check_files(options: AdaptOptions, model_files: ModelFiles) -> None:
    """Raise, before any work is done, where options have no meaning together or a file could not be written."""
    if not any((*options.outputs.values(), options.tensorboard)):
        raise OptionError(f"Nothing to write. Pass at least one of {', '.join(options.outputs)}, --tensorboard.")
    check_resumable(options)
    if options.safe and options.stats is None:
        raise OptionError("--safe compares with the source. Pass --stats FILE, made with regtta collect.")
    check_suffix("--predictions", options.predictions, PREDICTION_SUFFIXES)
    check_suffix("--record", options.record, (".json",))
    model_files.check_names()
    read = (options.weights, options.stats, data_options(options).path)
    check_outputs(options.outputs, inputs=(*read, options.checkpoint), force=options.force)
    check_outputs({"--checkpoint": options.checkpoint}, inputs=read, force=options.force or options.resume)
    options.monitored.check(options.stats, force=options.force)


def check_passes(options: AdaptOptions, data: Data) -> None:
    """Raise where the protocol needs more passes than the data has."""
    if options.protocol is Protocol.offline and not data.again:
        raise OptionError(
            f"--protocol offline goes over the data twice, but {options.data} is an iterator, used up "
            "after one pass. Give a function that returns a new one, a list or a DataLoader."
        )


def check_labels(chosen: Method, data: Data) -> None:
    """Raise where the method learns from labels and none were named."""
    if chosen.takes_targets and not data.target_names:
        raise OptionError(f"{chosen.name} learns from labels. Name them with --target.")


def check_rows(options: AdaptOptions, tally: Tally) -> None:
    """Raise where there was nothing to adapt to, or a second pass brought other rows than the first."""
    if tally.visited == 0:
        raise BatchError(f"{options.data} has no rows: there is nothing to adapt to.")
    if tally.visited != tally.predicted:
        raise BatchError(
            f"{options.data} gave {tally.visited} rows on its first pass and {tally.predicted} on its "
            "second. --protocol offline needs the same data twice."
        )
