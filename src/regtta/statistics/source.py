"""Source statistics: the moments of the source features, stored as mean and covariance spectrum.

The full covariance ``Σ = V diag(λ) Vᵀ`` is stored (all D directions), so that statistics of parts of
the data can be merged into those of the whole.

Two counts describe how much of the feature space the source uses, as in Table 1 of the paper:

* ``valid_dimensions``: raw dimensions with non-zero variance. Non-zero means a standard deviation
  above 1e-12 of the dimension's mean, which is about the limit of float64 rounding.
* ``rank``: the dimensions of the subspace, eigenvalues above ``λ₁ · D · 1.19e-7``. The factor is
  float32's epsilon: a direction whose variance is lost in float32 features is not counted.

``numerical_rank`` counts the directions that are not numerically null: eigenvalues above ``D · ε² · (λ₁ + ‖μ‖²)``, with
float32's epsilon ε. A standard deviation below the bound is within the rounding errors of features in float32, whereas
``rank`` compares variances with a rounding error of ε and excludes directions that do vary.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from regtta.errors import HeadMismatchError, ModelMismatchError, OptionError, StatisticsError
from regtta.statistics.input_moments import (
    ColumnMoments,
    merge_column_names,
    merge_covariances,
    unknown_columns,
    unknown_covariance,
)
from regtta.statistics.linalg import stable_eigh
from regtta.statistics.moments import Moments
from regtta.statistics.source_files import check_rank, read_statistics, write_statistics

Clip = bool | Literal["null"]
RANK_TOLERANCE = torch.finfo(torch.float32).eps
VALID_TOLERANCE = 1e-12
# Fraction of the source's variance; shifts in the remaining directions are within rounding errors.
EXPLAINED_VARIANCE = 0.99

logger = logging.getLogger(__name__)


def _merge_ranges(a: Tensor, b: Tensor) -> Tensor:
    """Return the elementwise maximum (C,) of two ranges; empty (unknown) if their lengths differ."""
    return torch.maximum(a, b) if len(a) == len(b) else unknown_columns()


@dataclass(frozen=True)
class Subspace:
    """Leading k principal directions of the source features.

    Attributes:
        mean: (D,) source mean.
        variances: (k,) eigenvalues in descending order.
        basis: (D, k) eigenvectors as orthonormal columns.
    """

    mean: Tensor
    variances: Tensor
    basis: Tensor

    def to(self, device: torch.device, dtype: torch.dtype) -> "Subspace":
        """Return the subspace on ``device`` in precision ``dtype``."""
        return Subspace(
            self.mean.to(device, dtype),
            self.variances.to(device, dtype),
            self.basis.to(device, dtype),
        )

    def project(self, features: Tensor) -> Tensor:
        """Return the coordinates (B, k) of features (B, D): ``(z − μ) V``."""
        return (features - self.mean) @ self.basis


@dataclass(frozen=True, eq=False, repr=False)
class SourceStatistics:
    """Moments of the source features at one head of one model; created by :func:`regtta.collect`.

    Attributes:
        mean: (D,) float64.
        variances: (D,) float64, eigenvalues of the unbiased covariance in descending order.
        basis: (D, D) float64, their eigenvectors as orthonormal columns. The component of largest
            magnitude of each is positive.
        feature_variances: (D,) float64, the variance of each raw dimension (the diagonal of Σ).
        count: number of samples.
        head: name of the linear layer whose input the features are.
        fingerprint: fingerprint of the model they were collected on (see :func:`fingerprint`).
        extras: additional statistics of individual methods, by ``"method/name"``.
        input_ranges: (C,) float64, the largest magnitude of each column of the inputs;
            empty if unknown.
        largest_feature_norm: largest ``‖y‖²`` of all samples in the whitened subspace that carries 99 % of the
            variance; 0 if unknown.
        columns: names of the table columns that were the inputs of the model, in order; empty if unknown.
        input_mean: (C,) float64, the mean of each column of the inputs: a column of a table (B, C), or all values of a
            channel (dimension 1) of images and sequences; one column for more than 256. Of shape (0,) if unknown.
        input_variance: (C,) float64, their unbiased variance; of shape (0,) if unknown.
        input_count: number of values of each column behind ``input_mean``; 0 if unknown.
        input_covariance: (C, C) float64, the unbiased covariance of the columns of a table of inputs (B, C); of shape
            (0, 0) for other inputs, for more than 256 columns, and if unknown.
    """

    mean: Tensor
    variances: Tensor
    basis: Tensor
    feature_variances: Tensor
    count: int
    head: str
    fingerprint: str
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    input_ranges: Tensor = field(default_factory=unknown_columns)
    largest_feature_norm: float = 0.0
    columns: tuple[str, ...] = ()
    input_mean: Tensor = field(default_factory=unknown_columns)
    input_variance: Tensor = field(default_factory=unknown_columns)
    input_count: int = 0
    input_covariance: Tensor = field(default_factory=unknown_covariance)

    @classmethod
    def from_moments(
        cls,
        moments: Moments,
        *,
        head: str,
        fingerprint: str,
        extras: Mapping[str, Tensor] | None = None,
    ) -> "SourceStatistics":
        """Compute the spectrum of the covariance of ``moments`` on the CPU.

        On a GPU the eigenvectors of covariances of low rank deviate from orthonormality by up to 5e-4 (2,048 features
        of rank 16, cuSOLVER, float64), so that the statistics could not be read again.
        """
        covariance = moments.covariance().cpu()
        variances, basis = stable_eigh(covariance)
        # eigh returns ascending order, rounding errors below zero, and signs that depend on the library.
        variances, basis = variances.flip(0).clamp_min(0), basis.flip(1)
        largest = basis.gather(0, basis.abs().argmax(dim=0, keepdim=True))
        return cls(
            mean=moments.mean.cpu(),
            variances=variances,
            # Same memory layout as after loading from a file, so that products round identically.
            basis=(basis * torch.where(largest < 0, -1.0, 1.0)).contiguous(),
            feature_variances=covariance.diagonal().clone(),
            count=moments.count,
            head=head,
            fingerprint=fingerprint,
            extras=dict(extras or {}),
        )

    def __repr__(self) -> str:
        """Return the number of samples and features, the rank and the head; the tensors would fill pages."""
        return (
            f"{type(self).__name__}(count={self.count}, dimensions={self.dimensions}, rank={self.rank}, "
            f"head={self.head!r})"
        )

    @property
    def dimensions(self) -> int:
        """Number of features D."""
        return len(self.mean)

    @cached_property
    def rank(self) -> int:
        """Rank of the covariance: the number of eigenvalues above ``λ₁ · D · 1.19e-7``."""
        return int((self.variances > self.variances[0] * self.dimensions * RANK_TOLERANCE).sum())

    @cached_property
    def numerical_rank(self) -> int:
        """Number of directions that are not numerically null: eigenvalues above ``D · ε² · (λ₁ + ‖μ‖²)``.

        ε is float32's epsilon, 1.19e-7. At least 1, unless all features are constant.

        Example:
            >>> moments = Moments.from_features(torch.tensor([[0.0, 0.0], [1.0, 1e-4], [2.0, 0.0]]))
            >>> source = SourceStatistics.from_moments(moments, head="fc", fingerprint="")
            >>> source.numerical_rank, source.rank
            (2, 1)
        """
        total = self.variances[0] + self.mean.square().sum()
        varying = int((self.variances > self.dimensions * RANK_TOLERANCE**2 * total).sum())
        return max(varying, 1) if self.rank else 0

    @cached_property
    def valid_dimensions(self) -> int:
        """Number of raw dimensions with non-zero variance."""
        return int(self.valid_mask.sum())

    @cached_property
    def valid_mask(self) -> Tensor:
        """Boolean mask (D,) of the raw dimensions with non-zero variance."""
        return self.feature_variances.sqrt() > VALID_TOLERANCE * self.mean.abs()

    def covariance(self) -> Tensor:
        """Return the unbiased covariance (D, D), reconstructed from its spectrum."""
        covariance = (self.basis * self.variances) @ self.basis.T
        # The diagonal is known exactly: a dimension with zero variance keeps it through any merge.
        covariance.diagonal().copy_(self.feature_variances)
        return covariance

    @cached_property
    def uncentred_spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues (D,), descending, and eigenvectors (D, D), as columns, of the uncentred ``E[z zᵀ]``.

        Cached: it takes seconds for thousands of features, and every adapter with these statistics needs it.
        """
        second = self.covariance() * ((self.count - 1) / self.count) + torch.outer(self.mean, self.mean)
        values, vectors = stable_eigh(second)
        return values.flip(0), vectors.flip(1)

    def output_moments(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean ``W μ`` and variance ``(W Σ Wᵀ)_oo``, both (O,), of ``weight`` (O, D) applied to features."""
        weight = weight.detach().cpu().double()
        return weight @ self.mean, ((weight @ self.basis) ** 2 * self.variances).sum(dim=1)

    def dimensions_for(self, fraction: float) -> int:
        """Return the number of leading directions that carry ``fraction`` of the variance."""
        carried = self.variances.cumsum(0) / self.variances.sum()
        return min(int((carried < fraction).sum()) + 1, self.dimensions)

    def leading_subspace(self, fraction: float = EXPLAINED_VARIANCE) -> Subspace:
        """Return the leading directions that carry ``fraction`` of the variance, at most as many as the rank."""
        return self.top(min(self.dimensions_for(fraction), self.rank))

    def whitened_norms(self, features: Tensor) -> Tensor:
        """Return ``‖Λ^(−1/2) Vᵀ (z − μ)‖²`` (B,) of features (B, D), in directions with 99 % of the variance."""
        subspace = self.leading_subspace()
        coordinates = subspace.project(features.cpu().double())
        return (coordinates.square() / subspace.variances).sum(dim=1)

    def directions(self, clip: Clip) -> int:
        """Return the number of directions that ``clip`` admits.

        ``True`` admits as many as the rank, ``"null"`` as the numerical rank, and ``False`` all of them.
        """
        if clip == "null":
            return self.numerical_rank
        return self.rank if clip else self.dimensions

    def top(self, k: int | Literal["auto"], clip: Clip = True) -> Subspace:
        """Return the ``k`` leading directions; ``"auto"`` uses the rank.

        With ``clip``, a ``k`` above the rank is reduced to it with a logged warning: further directions
        have no variance to divide by. ``clip="null"`` admits all directions that are not numerically null.

        Example:
            >>> moments = Moments.from_features(torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]]))
            >>> source = SourceStatistics.from_moments(moments, head="fc", fingerprint="")
            >>> source.top("auto").variances
            tensor([4.], dtype=torch.float64)
        """
        self.require_variance()
        if k == "auto":
            k = self.rank
        elif k < 1 or (k > self.dimensions and not clip):
            raise OptionError(
                f"Expected k between 1 and {self.dimensions}, the width of the features, found {k}. "
                'k="auto" takes the rank.'
            )
        limit = self.directions(clip)
        if k > limit:
            kind = "numerical rank" if clip == "null" else "rank"
            logger.warning("k=%d is beyond the %s %d of the source features: using %d.", k, kind, limit, limit)
            k = limit
        return Subspace(self.mean, self.variances[:k], self.basis[:, :k])

    def require_variance(self) -> None:
        """Raise a StatisticsError if all features are constant, so that no direction can be compared."""
        if self.rank == 0:
            raise StatisticsError(
                f"The source features do not vary: all {self.count} samples have the same features at the head "
                f"{self.head!r}. Collect over data that differs, and check that the model does not ignore its input."
            )

    def merge(self, other: "SourceStatistics") -> "SourceStatistics":
        """Return the statistics of both sets of samples together, as if collected in one pass.

        The result is exact up to float64 rounding. Additional statistics of methods (``extras``) are dropped. Raises a
        MismatchError if both name their input columns and the names or their order differ.
        """
        self.check_head(other.head)
        self.check_fingerprint(other.fingerprint)
        columns = merge_column_names(self.columns, other.columns)
        inputs = self._input_moments().merge(other._input_moments())
        if self.extras or other.extras:
            logger.warning("Merging keeps only the moments; dropped: %s.", sorted({*self.extras, *other.extras}))
        merged = SourceStatistics.from_moments(
            self._moments().merge(other._moments()), head=self.head, fingerprint=self.fingerprint
        )
        return replace(
            merged,
            input_ranges=_merge_ranges(self.input_ranges, other.input_ranges),
            largest_feature_norm=max(self.largest_feature_norm, other.largest_feature_norm),
            columns=columns,
            input_mean=inputs.mean,
            input_variance=inputs.variance,
            input_count=inputs.count,
            input_covariance=merge_covariances(
                (self._input_moments(), self.input_covariance), (other._input_moments(), other.input_covariance)
            ),
        )

    def check_fingerprint(self, fingerprint: str) -> None:
        """Raise a ModelMismatchError unless ``fingerprint`` is that of the model these were collected on."""
        if fingerprint != self.fingerprint:
            raise ModelMismatchError(
                f"These statistics were collected on another model: expected fingerprint "
                f"{self.fingerprint[:12]}…, found {fingerprint[:12]}…. Load the weights they belong to, "
                "or collect again; allow_mismatch=True skips this check."
            )

    def check_head(self, head: str) -> None:
        """Raise a HeadMismatchError unless ``head`` is the layer these were collected at."""
        if head not in (self.head, self.head.partition("[")[0]):  # with or without the pooling
            raise HeadMismatchError(
                f"These statistics were collected at the head {self.head!r}, not at {head!r}. Leave "
                "head= out, or collect again with it; allow_mismatch=True skips this check."
            )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the statistics to a safetensors file; it contains no source data."""
        write_statistics(path, self, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> "SourceStatistics":
        """Read and validate a file written by :meth:`save`."""
        loaded = cls(**read_statistics(path))
        check_rank(path, loaded.rank, loaded.count)
        return loaded

    def _moments(self) -> Moments:
        return Moments(self.count, self.mean, self.covariance() * (self.count - 1))

    def _input_moments(self) -> ColumnMoments:
        return ColumnMoments(self.input_count, self.input_mean, self.input_variance)
