"""State of one run of :func:`regtta.check`, with one method for each check."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from regtta.checks.cost import measure_step
from regtta.checks.result import CheckResult, Finding, Level
from regtta.checks.topics import (
    describe_batch_size,
    describe_head,
    describe_model,
    describe_moving,
    describe_source,
    moving_tensors,
)
from regtta.engine import check_arguments, check_needs
from regtta.errors import BatchError, RegttaError
from regtta.execution import PLAIN
from regtta.methods import Method, create_method
from regtta.models import (
    BatchReader,
    FeatureModel,
    FeaturePooling,
    Forward,
    Inputs,
    InputSelection,
    OutputSelection,
    check_model,
    find_head,
    fingerprint,
    input_tensors,
    inspect_batch_norm,
    model_device,
    private_copy,
)
from regtta.options import replace
from regtta.statistics import SourceStatistics, check_first_batch, describe_preprocessing


@dataclass
class CheckRun:
    """State of one run of the checks; a check that lacks the result of an earlier one does nothing."""

    model: nn.Module
    named: str | None
    output: OutputSelection | None
    pooling: FeaturePooling | None
    logged: list[str]
    method: Method | None = None
    source: SourceStatistics | None = None
    copy: nn.Module | None = None
    inputs: Inputs | None = None
    head: str | None = None
    width: int | None = None
    forward: Forward | None = None
    moving: tuple[str, ...] = ()
    cost: float | None = None
    seconds: float | None = None
    findings: list[Finding] = field(default_factory=list)

    def add(self, level: Level, topic: str, message: str) -> None:
        """Add a finding, unless there is one with the same message."""
        if all(message != finding.message for finding in self.findings):
            self.findings.append(Finding(level, topic, message))

    def warn(self, topic: str, message: str) -> None:
        """Add a warning if there is a message."""
        if message:
            self.add("warning", topic, message)

    @contextmanager
    def catching(self, topic: str) -> Iterator[None]:
        """Turn errors of the library inside the block into findings."""
        try:
            yield
        except RegttaError as error:
            self.add("error", topic, " ".join(str(error).split()))

    @property
    def failed(self) -> bool:
        """True if there are errors."""
        return any(finding.level == "error" for finding in self.findings)

    def result(self) -> CheckResult:
        """Return the findings, in the order of the checks."""
        name = "an unknown method" if self.method is None else self.method.name
        return CheckResult(
            type(self.model).__name__,
            name,
            tuple(self.findings),
            self.head,
            self.width,
            self.moving,
            self.cost,
            self.seconds,
        )

    # --- what was given --------------------------------------------------------------------------

    def read_method(self, method: Method | str, overrides: dict[str, object]) -> None:
        """Create the method."""
        if isinstance(method, str):
            self.method = create_method(method, **overrides)
            return
        check_arguments(method=method, source=None, execution=PLAIN, allow_mismatch=False)
        self.method = replace(method, overrides)

    def read_source(self, source: SourceStatistics | str | Path | None) -> None:
        """Load the statistics."""
        loaded = SourceStatistics.load(source) if isinstance(source, str | Path) else source
        if self.method is not None:
            check_arguments(method=self.method, source=loaded, execution=PLAIN, allow_mismatch=False)
        self.source = loaded

    def check_model(self) -> None:
        """Check the kind of the model, and copy it."""
        check_model(self.model)
        self.copy = private_copy(self.model).eval()
        self.add("ok", "model", describe_model(self.copy))

    def read_batch(self, batch: object, inputs: InputSelection | None) -> None:
        """Read the inputs of the batch."""
        if self.copy is None:
            return
        found = BatchReader(self.model, inputs)(batch).to(model_device(self.copy))
        if len(found) == 0:
            raise BatchError("The batch has no samples. Pass one with at least two.")
        self.inputs = found.clone() if found.is_inference() else found
        shapes = ", ".join(f"{tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in input_tensors(found))
        self.add("ok", "batch", f"{len(found):,} sample{'s' if len(found) > 1 else ''}: {shapes}.")
        finite = torch.stack([_finite_rows(tensor) for tensor in input_tensors(found)]).all(dim=0)
        if not bool(finite.all()):
            count = int((~finite).sum())
            message = f"{count:,} of {len(found):,} samples are not finite. They are predicted and not learned from."
            self.warn("batch", message)

    # --- model and features ----------------------------------------------------------------------

    def check_batch_norm(self) -> None:
        """Check the running statistics of BatchNorm."""
        found = None if self.copy is None else inspect_batch_norm(self.copy)
        if found is None or not found.layers:
            return
        if found.error:
            self.add("error", "BatchNorm", found.error)
        self.warn("BatchNorm", found.warning)
        if not found.error and not found.warning:
            self.add("ok", "BatchNorm", f"The running statistics have been trained; number of layers: {found.layers}.")

    def check_head(self) -> None:
        """Find the head, and run the model."""
        if self.copy is None or self.inputs is None:
            return
        named = self.named or (None if self.source is None else self.source.head)
        try:
            with torch.no_grad():
                self.head = find_head(self.copy, self.inputs, named=named, output=self.output, pooling=self.pooling)
                model = FeatureModel(self.copy, self.head, output=self.output, pooling=self.pooling)
                self.forward = model(self.inputs)
        except RegttaError as error:
            self.head = None
            needed = self.method is None or self.method.needs_head
            self.add("error" if needed else "warning", "head", " ".join(str(error).split()))
            return
        except Exception as error:  # a model may raise anything
            self.head = None
            self.add("error", "batch", _describe_failure(error, self.inputs))
            return
        self.width = model.head.in_features
        self.add("ok", "head", describe_head(self.copy, self.head, model.head))

    def check_features(self) -> None:
        """Check that features are finite and vary."""
        if self.forward is None or self.inputs is None or len(self.inputs) < 2:
            return
        values = self.forward.flat_features
        finite = values.isfinite().all(dim=1)
        if not bool(finite.all()):
            share = int((~finite).sum()) / len(finite)
            self.warn("features", f"The features of {share:.0%} of the batch are not finite. Check inputs and weights.")
            return
        doubt = check_first_batch(self.inputs, values)
        self.warn("features", doubt)
        if not doubt:
            spread = float(values.double().std(dim=0, correction=0).square().mean().sqrt())
            self.add("ok", "features", f"{values.shape[1]:,} features with a standard deviation of {spread:.2g}.")

    # --- the method ------------------------------------------------------------------------------

    def check_moving(self) -> None:
        """List what adaptation changes."""
        if self.copy is None or self.method is None:
            return
        tensors = moving_tensors(self.copy, self.head, self.method)
        self.moving = tuple(tensors)
        for level, message in describe_moving(self.copy, self.method, tensors):
            self.add(level, "parameters", message)

    def check_batch_size(self) -> None:
        """Check that the batch is large enough for the method."""
        if self.copy is None or self.inputs is None or self.method is None or not self.method.adapts:
            return
        level, message = describe_batch_size(self.copy, self.method, len(self.inputs), self.source, self.width)
        self.add(level, "batch size", message)

    def check_source(self) -> None:
        """Check that the statistics are of this model and head, and of enough samples."""
        if self.copy is None or self.method is None:
            return
        if self.source is None:
            if self.method.needs_source:
                message = f"{self.method.name} needs source statistics; none were given. Collect them once with "
                self.add("ok", "statistics", message + "regtta.collect(model, loader).")
            return
        check_needs(self.method, (), self.source)
        self.source.check_fingerprint(fingerprint(self.copy))
        if self.head is not None:
            self.source.check_head(self.head)
        for level, message in describe_source(self.source, self.method, self.width):
            self.add(level, "statistics", message)

    def check_preprocessing(self) -> None:
        """Compare the inputs with those of the source."""
        if self.inputs is None or self.source is None:
            return
        doubt = describe_preprocessing(self.inputs, self.source)
        self.warn("preprocessing", doubt or "")
        if doubt is None:
            self.add("ok", "preprocessing", "Not compared: the statistics do not describe inputs like these.")
        elif not doubt:
            self.add("ok", "preprocessing", "The inputs resemble those of the source, or have shifted.")

    def check_cost(self) -> None:
        """Measure predictions and steps on a private copy."""
        if self.failed or self.copy is None or self.inputs is None or self.method is None:
            return
        if not self.method.adapts or self.method.takes_targets:
            why = "learns from labels" if self.method.adapts else "changes nothing"
            self.add("ok", "cost", f"Not measured: {self.method.name} {why}.")
            return
        known = len(self.logged)
        try:
            cost = measure_step(
                self.copy,
                self.method,
                self.inputs,
                self.source,
                head=self.head,
                output=self.output,
                features=self.pooling,
            )
        except RegttaError:
            raise
        except Exception as error:  # a model may raise anything
            self.add("error", "batch", _describe_failure(error, self.inputs))
            return
        finally:
            if self.source is None:
                del self.logged[known:]  # warnings about the statistics of this batch, used in place of the source's
        self.cost, self.seconds = cost.ratio, cost.step_seconds
        for name in cost.unmoved:
            self.moving = tuple(known for known in self.moving if known != name)
        self.warn("parameters", cost.describe_unmoved())
        self.add(cost.level, "cost", cost.message)


def _finite_rows(tensor: Tensor) -> Tensor:
    return tensor.isfinite().flatten(1).all(dim=1) if tensor.ndim > 1 else tensor.isfinite()


def _describe_failure(error: Exception, inputs: Inputs) -> str:
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in input_tensors(inputs))
    text = " ".join(str(error).split()).rstrip(".")
    return (
        f"The model cannot take the batch ({type(error).__name__}: {text:.300}). Its inputs have the shapes {shapes}. "
        "Pass batches as in training."
    )
