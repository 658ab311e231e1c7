"""Adaptation methods, one per module, and their registry ``METHODS``, which includes those of installed packages."""

from regtta.methods.actmad import ActMAD
from regtta.methods.alignment import AlignmentMethod, significance
from regtta.methods.auto import Auto
from regtta.methods.base import OPTIMIZERS, GradientMethod, Method, MethodContext, Schedule
from regtta.methods.bn_adapt import BNAdapt
from regtta.methods.consistency import Consistency
from regtta.methods.cwsa import CWSA
from regtta.methods.dare_gram import DareGram
from regtta.methods.feature_alignment import FeatureAlignment
from regtta.methods.feature_restoration import FeatureRestoration
from regtta.methods.losses import symmetric_kl
from regtta.methods.no_adaptation import NoAdaptation
from regtta.methods.oracle import Oracle
from regtta.methods.prototype import Prototype
from regtta.methods.psc import PSC
from regtta.methods.recalibrate_once import RecalibrateOnce
from regtta.methods.recentre import Recentre
from regtta.methods.recolour import Recolour
from regtta.methods.registry import METHODS, MethodRegistry, create_method, method_options
from regtta.methods.rsd import RSD
from regtta.methods.rules import Batch, Buffered, NewHead, Rule, Skip, Update
from regtta.methods.ssa import SSA
from regtta.methods.sums import Sum
from regtta.methods.tent import Tent
from regtta.methods.ttt import ROTATIONS, TTT, rotate_images
from regtta.methods.variance_minimization import VarianceMinimization

__all__ = [
    "CWSA",
    "METHODS",
    "OPTIMIZERS",
    "PSC",
    "ROTATIONS",
    "RSD",
    "SSA",
    "TTT",
    "ActMAD",
    "AlignmentMethod",
    "Auto",
    "BNAdapt",
    "Batch",
    "Buffered",
    "Consistency",
    "DareGram",
    "FeatureAlignment",
    "FeatureRestoration",
    "GradientMethod",
    "Method",
    "MethodContext",
    "MethodRegistry",
    "NewHead",
    "NoAdaptation",
    "Oracle",
    "Prototype",
    "RecalibrateOnce",
    "Recentre",
    "Recolour",
    "Rule",
    "Schedule",
    "Skip",
    "Sum",
    "Tent",
    "Update",
    "VarianceMinimization",
    "create_method",
    "method_options",
    "rotate_images",
    "significance",
    "symmetric_kl",
]
