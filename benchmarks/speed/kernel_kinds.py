"""Classification of kernels and operators into kinds of work by their names."""

KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # The first match counts: a fused kernel of BatchNorm and additions is classified as BatchNorm.
    ("optimizer", ("adam", "multi_tensor", "foreach")),
    ("BatchNorm", ("batch_norm", "batchnorm", "bn_fw", "bn_bw", "::bn", "native_batch")),
    ("convolution", ("conv", "fprop", "dgrad", "wgrad", "winograd", "cudnn", "implicit")),
    ("matrix product", ("gemm", "gemv", "::mm", "::addmm", "::bmm", "cutlass", "nvjet", "splitk", "::linear")),
    ("copies", ("memcpy", "memset", "copy", "::clone", "nchwto", "nhwcto", "transpose", "::fill", "::zero")),
    ("pooling", ("pool",)),
    ("reductions", ("reduce", "triton_red", "triton_per", "::sum", "::mean", "::var", "::norm", "_norm")),
    ("elementwise", ("elementwise", "triton_poi", "::relu", "threshold", "::add", "::mul", "::sub", "::div", "clamp")),
    ("elementwise", ("::pow", "::sqrt", "lerp", "::log", "reciprocal")),
    ("autograd and views", ("autograd::", "backward0", "::empty", "as_strided", "detach", "::expand", "::slice")),
)
OTHER = "other"


def kind_of(name: str) -> str:
    """Return the kind of the kernel or operator ``name``.

    Example:
        >>> kind_of("sm90_xmma_dgrad_implicit_gemm_bf16"), kind_of("triton_red_fused__native_batch_norm_legit_relu_3")
        ('convolution', 'BatchNorm')
    """
    lowered = name.lower()
    return next((kind for kind, marks in KINDS if any(mark in lowered for mark in marks)), OTHER)
