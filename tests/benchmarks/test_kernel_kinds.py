import pytest

from benchmarks.speed.kernel_kinds import kind_of

NAMES = {
    "sm90_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc": "convolution",
    "void cudnn::cnn::dgrad_engine<float, 512>": "convolution",
    "aten::convolution_backward": "convolution",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512>": "BatchNorm",
    "void at::native::batch_norm_backward_reduce_channels_last_kernel": "BatchNorm",
    "aten::native_batch_norm_backward": "BatchNorm",
    "triton_red_fused__native_batch_norm_legit_functional_add_relu_12": "BatchNorm",
    "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>": "optimizer",
    "Optimizer.step#Adam.step": "optimizer",
    "Memcpy DtoD (Device -> Device)": "copies",
    "Memset (Device)": "copies",
    "void at::native::vectorized_elementwise_kernel<4, clamp_min>": "elementwise",
    "triton_poi_fused_relu_3": "elementwise",
    "nvjet_tst_64x8_64x16_4x1_v_bz_TNT": "matrix product",
    "aten::addmm": "matrix product",
    "void at::native::reduce_kernel<512, 1, MeanOps>": "reductions",
    "void at::native::max_pool_forward_nhwc<float>": "pooling",
    "aten::lerp_": "elementwise",
    "autograd::engine::evaluate_function: ReluBackward0": "autograd and views",
    "something else": "other",
}


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_classified_by_name(name):
    assert kind_of(name) == NAMES[name]
