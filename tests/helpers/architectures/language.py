"""Models of transformers, and adapters of peft on them, with random weights."""

import warnings
from collections.abc import Callable

import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from helpers.architectures.entry import Architecture, Draw, draw_images, draw_table, draw_tokens, generator

SMALL = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "pad_token_id": 0,
}
EXPORTED = (".pt2", ".onnx")
NO_SPECIAL_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _classifier(kind: str, outputs: int = 1, **options: object) -> nn.Module:
    """Return a ``...ForSequenceClassification`` with weights larger than those at the start of a training."""
    config = getattr(transformers, f"{kind}Config")(num_labels=outputs, problem_type="regression", **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated", FutureWarning)  # by DebertaV2's import
        return _spread(getattr(transformers, f"{kind}ForSequenceClassification")(config))


@torch.no_grad()
def _spread(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.mul_(8)
    return model


def _text(name: str, kind: str, head: str, width: int = 16, *, outputs: int = 1, **options: object) -> Architecture:
    exports = options.pop("exports", ())
    mask = options.pop("mask", True)

    def factory() -> nn.Module:
        return _classifier(kind, outputs, **options)

    draw = draw_tokens(mask=bool(mask), labels=True)
    return Architecture(name, "transformers", factory, draw, head, width, exports=exports)  # type: ignore[arg-type]


class MeanOfTokens(nn.Module):
    """Encoder of T5 with a linear layer on the mean of the tokens that are not padding."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)
        self.encoder = transformers.T5EncoderModel(config)
        self.score = nn.Linear(16, 1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        tokens = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        kept = attention_mask.unsqueeze(-1).to(tokens.dtype)
        return self.score((tokens * kept).sum(dim=1) / kept.sum(dim=1))


def _under(name: str, draw: Draw) -> Draw:
    """Return a function that draws dicts with the inputs under ``name``, and labels."""

    def draw_dict(rows: int, seed: int, shift: float = 0.0) -> dict[str, Tensor]:
        drawn = draw(rows, seed, shift)
        return {
            name: drawn[0] if isinstance(drawn, tuple) else drawn,
            "labels": torch.rand(rows, generator=generator(seed)),
        }

    return draw_dict


def _vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=32,
        patch_size=16,
        num_labels=1,
    )
    return _spread(transformers.ViTForImageClassification(config))


def _wav2vec2() -> nn.Module:
    config = transformers.Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        conv_dim=(8, 8),
        conv_stride=(4, 2),
        conv_kernel=(8, 4),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=12,
        num_labels=1,
    )
    return _spread(transformers.Wav2Vec2ForSequenceClassification(config))


def _spectrogram_transformer() -> nn.Module:
    config = transformers.ASTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        patch_size=4,
        max_length=16,
        num_mel_bins=8,
        frequency_stride=4,
        time_stride=4,
        num_labels=2,
    )
    return _spread(transformers.ASTForAudioClassification(config))


PATCHES = {"num_input_channels": 2, "context_length": 24, "patch_length": 4, "patch_stride": 4, "d_model": 16}


def _patch_tst() -> nn.Module:
    config = transformers.PatchTSTConfig(
        **PATCHES, num_hidden_layers=1, num_attention_heads=2, ffn_dim=24, num_targets=3, loss="mse"
    )
    return _spread(transformers.PatchTSTForRegression(config))


def _patch_tst_forecaster() -> nn.Module:
    config = transformers.PatchTSTConfig(
        **PATCHES, num_hidden_layers=1, num_attention_heads=2, ffn_dim=24, prediction_length=4, loss="mse"
    )
    return _spread(transformers.PatchTSTForPrediction(config))


def _patch_mixer() -> nn.Module:
    config = transformers.PatchTSMixerConfig(**PATCHES, num_layers=1, num_targets=2, loss="mse")
    return _spread(transformers.PatchTSMixerForRegression(config))


def _lora_bert() -> nn.Module:
    config = LoraConfig(r=2, target_modules=["query", "value"], modules_to_save=["classifier"], task_type="SEQ_CLS")
    return get_peft_model(_classifier("Bert", **SMALL), config)  # type: ignore[arg-type]


def _lora_mlp() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 2))
    return get_peft_model(model, LoraConfig(r=2, target_modules=["0", "3"], init_lora_weights=False))


def _named(
    name: str, factory: Callable[[], nn.Module], key: str, draw: Draw, head: str, width: int, **options: str
) -> Architecture:
    """Return a model whose only input has another name than those of texts."""
    return Architecture(name, "transformers", factory, _under(key, draw), head, width, **options)  # type: ignore[arg-type]


SERIES = draw_table(24, 2)
DISTILLED = {
    "vocab_size": 60,
    "dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 24,
    "max_position_embeddings": 24,
}
GPT2 = {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, **NO_SPECIAL_TOKENS}

LANGUAGE = (
    _text("Bert", "Bert", "classifier", exports=EXPORTED, **SMALL),
    _text("Bert, three outputs, no mask", "Bert", "classifier", outputs=3, mask=False, **SMALL),
    _text("DistilBert", "DistilBert", "classifier", **DISTILLED),
    _text("Roberta", "Roberta", "classifier.out_proj", **{**SMALL, "pad_token_id": 1}),
    _text("Albert", "Albert", "classifier", embedding_size=8, **SMALL),
    _text("Electra", "Electra", "classifier.out_proj", embedding_size=8, **SMALL),
    _text("DebertaV2", "DebertaV2", "classifier", relative_attention=True, pos_att_type=["p2c", "c2p"], **SMALL),
    _text("GPT2", "GPT2", "score[matched]", **GPT2),
    _text("Llama", "Llama", "score[matched]", outputs=2, num_key_value_heads=1, exports=(".pt2", ".onnx"), **SMALL),
    _text("Qwen2", "Qwen2", "score[matched]", num_key_value_heads=1, **SMALL),
    Architecture("T5 encoder, mean of tokens", "transformers", MeanOfTokens, draw_tokens(), "score", 16),
    _named("ViT", _vit, "pixel_values", draw_images(32), "classifier", 16),
    _named("Wav2Vec2", _wav2vec2, "input_values", draw_table(160), "classifier", 12),
    _named("AST", _spectrogram_transformer, "input_values", draw_table(16, 8), "classifier.dense", 16),
    _named("PatchTST, regression", _patch_tst, "past_values", SERIES, "head.projection", 32),
    _named(
        "PatchTST, forecast",
        _patch_tst_forecaster,
        "past_values",
        SERIES,
        "head.projection[all]",
        16,
        output="prediction_outputs",
    ),
    _named("PatchTSMixer", _patch_mixer, "past_values", SERIES, "head.projection", 32, output="regression_outputs"),
    Architecture("LoRA of Bert", "peft", _lora_bert, draw_tokens(labels=True), "base_model.model.classifier", 16),
    Architecture("LoRA of an MLP and its head", "peft", _lora_mlp, draw_table(5), "base_model.model.3", 12),
)
