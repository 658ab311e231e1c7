"""Any ``nn.Module`` as a feature extractor with a linear head: batches, features, and the parameters that may move."""

from regtta.models.augmentation import crop_windows, shift_and_jitter, shift_pixels
from regtta.models.batch_norm import (
    BATCH_NORM_MODES,
    BatchNormMode,
    BatchNormSwitch,
    batch_norm_layers,
    has_constant_operations,
    non_negative_buffers,
)
from regtta.models.batches import BatchReader, InputSelection
from regtta.models.calibration import BatchNormReport, inspect_batch_norm
from regtta.models.features import (
    FeatureModel,
    Forward,
    RunForward,
    forward_without_features,
    run_model,
)
from regtta.models.fingerprints import digest_tensors, fingerprint, tensor_bytes
from regtta.models.head_search import find_head
from regtta.models.heads import FeaturePooling, Head, affine_layers, check_pooling
from regtta.models.layer_outputs import LayerOutputs
from regtta.models.model_checks import check_model
from regtta.models.model_inputs import Inputs, ModelInputs, describe_sample, dummy_sample, input_tensors
from regtta.models.outputs import OutputSelection, check_output_selection, select_output
from regtta.models.parameters import (
    TRAINABLE,
    BufferSlots,
    Trainable,
    freeze_all_but,
    model_device,
    normalisation_layers,
    private_copy,
    trainable_parameters,
)
from regtta.models.recurrent import recurrent_training
from regtta.models.weight_assignment import assign_tensor, check_assignable, recompute_weights

__all__ = [
    "BATCH_NORM_MODES",
    "TRAINABLE",
    "BatchNormMode",
    "BatchNormReport",
    "BatchNormSwitch",
    "BatchReader",
    "BufferSlots",
    "FeatureModel",
    "FeaturePooling",
    "Forward",
    "Head",
    "InputSelection",
    "Inputs",
    "LayerOutputs",
    "ModelInputs",
    "OutputSelection",
    "RunForward",
    "Trainable",
    "affine_layers",
    "assign_tensor",
    "batch_norm_layers",
    "check_assignable",
    "check_model",
    "check_output_selection",
    "check_pooling",
    "crop_windows",
    "describe_sample",
    "digest_tensors",
    "dummy_sample",
    "find_head",
    "fingerprint",
    "forward_without_features",
    "freeze_all_but",
    "has_constant_operations",
    "input_tensors",
    "inspect_batch_norm",
    "model_device",
    "non_negative_buffers",
    "normalisation_layers",
    "private_copy",
    "recompute_weights",
    "recurrent_training",
    "run_model",
    "select_output",
    "shift_and_jitter",
    "shift_pixels",
    "tensor_bytes",
    "trainable_parameters",
]
