"""Every error that is the user's to fix.

Each says what was expected, what came, and what to do. Catch :class:`RegttaError` for all of them.
"""


class RegttaError(Exception):
    """The root of every error that regtta raises on purpose."""


class HeadError(RegttaError):
    """No linear head could be found, or the one named does not fit."""


class BatchError(RegttaError):
    """A batch is not of a form that can be read."""


class ModelError(RegttaError):
    """The model lacks what the method needs, or cannot be copied or run."""


class OptionError(RegttaError):
    """A hyperparameter is unknown, misspelt or out of range."""


class StatisticsError(RegttaError):
    """Source statistics are missing, or cannot be made from what was given."""


class FileError(RegttaError):
    """A file cannot be read or written."""


class MissingFileError(FileError):
    """There is no file at the path."""


class ExistingFileError(FileError):
    """A file is in the way and overwriting was not asked for."""


class TruncatedFileError(FileError):
    """The file ends before its header says it should."""


class PickleRefusedError(FileError):
    """The file is a pickle, which could run code when loaded."""


class NewerFormatError(FileError):
    """The file was written by a newer regtta."""


class ForeignFileError(FileError):
    """The file is of another kind than the one asked for."""


class MismatchError(RegttaError):
    """Two things that belong together do not."""


class ModelMismatchError(MismatchError):
    """The statistics were collected on another model."""


class HeadMismatchError(MismatchError):
    """The statistics were collected at another head."""


class StateError(MismatchError):
    """A saved state holds something that the running adapter would never write."""


class MissingExtraError(RegttaError):
    """An optional dependency is not installed."""


class ProcessError(RegttaError):
    """Processes that work together cannot: one is gone, or they were given different things."""


class PeerError(ProcessError):
    """Another process has failed, and says why itself; this one cannot go on without it."""
