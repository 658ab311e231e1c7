"""Validation of the options and the data of ``regtta adapt``."""

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
    """Raise if options contradict each other or an output file cannot be written."""
    if not any((*options.outputs.values(), options.tensorboard)):
        raise OptionError(f"Nothing to write. Pass at least one of {', '.join(options.outputs)}, --tensorboard.")
    check_resumable(options)
    if options.safe and options.stats is None:
        raise OptionError("--safe needs source statistics. Pass --stats FILE, written by regtta collect.")
    check_suffix("--predictions", options.predictions, PREDICTION_SUFFIXES)
    check_suffix("--record", options.record, (".json",))
    model_files.check_names()
    read = (options.weights, options.stats, data_options(options).path)
    check_outputs(options.outputs, inputs=(*read, options.checkpoint), force=options.force)
    check_outputs({"--checkpoint": options.checkpoint}, inputs=read, force=options.force or options.resume)
    options.monitored.check(options.stats, force=options.force)


def check_passes(options: AdaptOptions, data: Data) -> None:
    """Raise if the protocol needs two passes and the data allows only one."""
    if options.protocol is Protocol.offline and not data.again:
        raise OptionError(
            f"--protocol offline needs two passes over the data, but {options.data} is an iterator, exhausted "
            "after one. Pass a list, a DataLoader or a function that returns a new iterator."
        )


def check_labels(chosen: Method, data: Data) -> None:
    """Raise if the method learns from labels and none are given."""
    if chosen.takes_targets and not data.target_names:
        raise OptionError(f"{chosen.name} learns from labels. Name them with --target.")


def check_rows(options: AdaptOptions, tally: Tally) -> None:
    """Raise if the data has no rows, or if its second pass gave another number of rows than the first."""
    if tally.visited == 0:
        raise BatchError(f"{options.data} has no rows: there is nothing to adapt to.")
    if tally.visited != tally.predicted:
        raise BatchError(
            f"{options.data} gave {tally.visited} rows on its first pass and {tally.predicted} on its "
            "second. --protocol offline needs the same data in both passes."
        )
