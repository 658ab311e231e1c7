"""Selection of a method by a few labelled target samples: paired comparison, recommendation, output correction."""

from regtta.selection.candidates import Candidates, candidate_name, default_candidates, read_candidates
from regtta.selection.output_correction import CorrectedModel, CorrectionKind, OutputCorrection, fit_correction
from regtta.selection.paired_comparison import PairedComparison, compare_losses
from regtta.selection.result import Selection, describe_correction
from regtta.selection.run_selection import select
from regtta.selection.scoring import CandidateScore, Loss, choose, sample_losses, score_candidates

__all__ = [
    "CandidateScore",
    "Candidates",
    "CorrectedModel",
    "CorrectionKind",
    "Loss",
    "OutputCorrection",
    "PairedComparison",
    "Selection",
    "candidate_name",
    "choose",
    "compare_losses",
    "default_candidates",
    "describe_correction",
    "fit_correction",
    "read_candidates",
    "sample_losses",
    "score_candidates",
    "select",
]
