"""Exceptions for errors that the user can fix.

Messages say what was expected, what was found and what to do. Catch :class:`RegttaError` for all of them.
"""


class RegttaError(Exception):
    """Base class of all errors that regtta raises deliberately."""


class HeadError(RegttaError):
    """No linear head was found, or the named layer is not a valid head."""


class BatchError(RegttaError):
    """A batch has an unsupported type, shape or dtype."""


class ModelError(RegttaError):
    """The model lacks what the method needs, or cannot be copied or run."""


class OptionError(RegttaError):
    """A hyperparameter is unknown, misspelt or out of range."""


class StatisticsError(RegttaError):
    """Source statistics are missing, or cannot be computed from the given data."""


class FileError(RegttaError):
    """A file cannot be read or written."""


class MissingFileError(FileError):
    """There is no file at the path."""


class ExistingFileError(FileError):
    """The file exists already and overwriting was not requested."""


class TruncatedFileError(FileError):
    """The file is shorter than its header declares."""


class UnsafePickleError(FileError):
    """The file is a pickle, which could run code when loaded."""


class NewerFormatError(FileError):
    """The file was written by a newer version of regtta."""


class InvalidFileError(FileError):
    """The file is damaged or not of the expected kind."""


class MismatchError(RegttaError):
    """Two objects that must belong together do not match."""


class ModelMismatchError(MismatchError):
    """The statistics were collected on another model."""


class HeadMismatchError(MismatchError):
    """The statistics were collected at another head."""


class StateError(MismatchError):
    """A saved state holds values that are invalid for this adapter."""


class MissingExtraError(RegttaError):
    """An optional dependency is not installed."""


class ProcessError(RegttaError):
    """Distributed processes cannot continue: one is gone, or their arguments differ."""


class PeerError(ProcessError):
    """Another process has failed and reports the cause itself; this one cannot continue without it."""
