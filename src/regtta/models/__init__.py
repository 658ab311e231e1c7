"""Any ``nn.Module`` as a feature extractor with a linear head: batches, features, and the parameters that may move."""

from regtta.models.augmentation import shift_and_jitter, windows
from regtta.models.batch_norm import (
    BATCH_NORM_MODES,
    BatchNormMode,
    BatchNormSwitch,
    batch_norms,
    never_negative,
    steady,
)
from regtta.models.batches import inputs_of
from regtta.models.features import (
    FeatureModel,
    Forward,
    RunForward,
    call_model,
    find_head,
    head_module,
    linear_layers,
    model_device,
    run_model,
    without_features,
)
from regtta.models.fingerprints import digest_of_tensors, fingerprint
from regtta.models.parameters import (
    TRAINABLE,
    BufferSlots,
    Trainable,
    freeze_all_but,
    private_copy,
    trainable_parameters,
)
from regtta.models.weight_assignment import assign, check_assignable, refresh

__all__ = [
    "BATCH_NORM_MODES",
    "TRAINABLE",
    "BatchNormMode",
    "BatchNormSwitch",
    "BufferSlots",
    "FeatureModel",
    "Forward",
    "RunForward",
    "Trainable",
    "assign",
    "batch_norms",
    "call_model",
    "check_assignable",
    "digest_of_tensors",
    "find_head",
    "fingerprint",
    "freeze_all_but",
    "head_module",
    "inputs_of",
    "linear_layers",
    "model_device",
    "never_negative",
    "private_copy",
    "refresh",
    "run_model",
    "shift_and_jitter",
    "steady",
    "trainable_parameters",
    "windows",
    "without_features",
]
