"""Any ``nn.Module`` as a feature extractor with a linear head: batches, features, and the parameters that may move."""

from regtta.models.augmentation import crop_windows, shift_and_jitter
from regtta.models.batch_norm import (
    BATCH_NORM_MODES,
    BatchNormMode,
    BatchNormSwitch,
    batch_norm_layers,
    has_constant_updates,
    non_negative_buffers,
)
from regtta.models.batches import extract_inputs
from regtta.models.features import (
    FeatureModel,
    Forward,
    RunForward,
    call_model,
    find_head,
    forward_without_features,
    head_module,
    linear_layers,
    model_device,
    run_model,
)
from regtta.models.fingerprints import digest_tensors, fingerprint, tensor_bytes
from regtta.models.parameters import (
    TRAINABLE,
    BufferSlots,
    Trainable,
    freeze_all_but,
    private_copy,
    trainable_parameters,
)
from regtta.models.weight_assignment import assign_tensor, check_assignable, recompute_weights

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
    "assign_tensor",
    "batch_norm_layers",
    "call_model",
    "check_assignable",
    "crop_windows",
    "digest_tensors",
    "extract_inputs",
    "find_head",
    "fingerprint",
    "forward_without_features",
    "freeze_all_but",
    "has_constant_updates",
    "head_module",
    "linear_layers",
    "model_device",
    "non_negative_buffers",
    "private_copy",
    "recompute_weights",
    "run_model",
    "shift_and_jitter",
    "tensor_bytes",
    "trainable_parameters",
]
