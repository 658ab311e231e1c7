"""Files in and out: safetensors, checkpoints, exported models and their provenance; never a pickle."""

from regtta.persistence.atomic_files import atomic_write, check_not_existing
from regtta.persistence.checkpoint import Checkpoint
from regtta.persistence.export import (
    PROVENANCE,
    STATE_DICT,
    SUFFIXES,
    check_exportable,
    check_packages,
    read_provenance,
    save_model,
)
from regtta.persistence.identity import same_description, serialized_name, to_dict, to_dict_v0_1_0
from regtta.persistence.provenance import Provenance, device_name, software_versions, utc_now
from regtta.persistence.safe_read import (
    MAX_JSON_BYTES,
    BoundedFile,
    convert_errors,
    npz_array,
    npz_names,
    parse_json,
    read_bounded,
)
from regtta.persistence.safetensors_files import (
    load_tensors,
    load_weights,
    read_metadata,
    read_safetensors,
    write_safetensors,
)
from regtta.persistence.state_validation import (
    MAX_COUNT,
    require_bool,
    require_count,
    require_like,
    require_mapping,
    require_number,
    require_sequence,
    require_str,
    require_tensor,
    state_error,
    validate_part,
)

__all__ = [
    "MAX_COUNT",
    "MAX_JSON_BYTES",
    "PROVENANCE",
    "STATE_DICT",
    "SUFFIXES",
    "BoundedFile",
    "Checkpoint",
    "Provenance",
    "atomic_write",
    "check_exportable",
    "check_not_existing",
    "check_packages",
    "convert_errors",
    "device_name",
    "load_tensors",
    "load_weights",
    "npz_array",
    "npz_names",
    "parse_json",
    "read_bounded",
    "read_metadata",
    "read_provenance",
    "read_safetensors",
    "require_bool",
    "require_count",
    "require_like",
    "require_mapping",
    "require_number",
    "require_sequence",
    "require_str",
    "require_tensor",
    "same_description",
    "save_model",
    "serialized_name",
    "software_versions",
    "state_error",
    "to_dict",
    "to_dict_v0_1_0",
    "utc_now",
    "validate_part",
    "write_safetensors",
]
