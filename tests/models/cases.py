"""The tiny checkpoints: one or more of each family, every setting away from its default."""

from __future__ import annotations

SMALL = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4}
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA = {**SMALL, **GROUPED, **IDS, "max_position_embeddings": 64}
BERT = {**SMALL, **HEADS, "max_position_embeddings": 32, "type_vocab_size": 2}
ROBERTA = {**BERT, "pad_token_id": 1, "type_vocab_size": 1}
DEBERTA = {
    **SMALL,
    **HEADS,
    "max_position_embeddings": 32,
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
    "position_buckets": 4,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
ESM = {**SMALL, **HEADS, "max_position_embeddings": 32, "pad_token_id": 1, "mask_token_id": 9}
T5 = {"vocab_size": 32, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4}
BOTH = {
    "inputs": {"input_ids": None, "decoder_input_ids": None},
    "parts": {"": "encoder_", "decoder_": "decoder_"},
    "cross": True,
}
IMAGE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "image_size": 12,
    "patch_size": 4,
}
NAFLEX = {**{key: size for key, size in IMAGE.items() if key != "image_size"}, "num_patches": 9}
DINO = {key: size for key, size in IMAGE.items() if key != "intermediate_size"}
CLIP_TEXT = {**SMALL, **HEADS, **IDS, "max_position_embeddings": 16}
GEMMA3 = {
    **LLAMA,
    "num_hidden_layers": 3,
    "head_dim": 6,
    "query_pre_attn_scalar": 10,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
    },
}
GEMMA3N = {
    **LLAMA,
    "num_hidden_layers": 5,
    "head_dim": 6,
    "intermediate_size": [24, 20, 24, 28, 24],
    "activation_sparsity_pattern": [0.6, 0.0, 0.3, 0.0, 0.8],
    "sliding_window": 3,
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full")],
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 4,
    "vocab_size_per_layer_input": 32,
    "altup_num_inputs": 3,
    "laurel_rank": 5,
}

GEMMA_PART = {
    **LLAMA,
    "model_type": "t5_gemma_module",
    "head_dim": 6,
    "query_pre_attn_scalar": 10,
    "attn_logit_softcapping": 4.0,
    "sliding_window": 2,
}
BART = {
    "vocab_size": 32,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
    **IDS,
    "decoder_start_token_id": 2,
}
SECTIONS = {
    **LLAMA,
    "rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [1, 0, 1]},
}
STATEFUL = {
    **LLAMA,
    "head_dim": 8,
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 6,
}
SOUND = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "vocab_size": 32,
    "conv_dim": [8, 8],
    "conv_kernel": [3, 3],
    "conv_stride": [2, 2],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
HEARD = {"inputs": {"input_values": (40,)}}
PATCHES = {"depth": 1, "embed_dim": 8, "hidden_size": 8, "num_heads": 1, "patch_size": 2}


def case(name: str, model: str, config: str, settings: dict, **more) -> dict:
    """One checkpoint: transformers' classes, the settings, and how its forward pass is called."""
    return {"name": name, "model": model, "config": config, "settings": settings, **more}


def llama(name: str, **settings) -> dict:
    """Llama's tensors under another configuration."""
    own = {**LLAMA, "head_dim": 8, "rms_norm_eps": 1e-3, **settings}
    return case(name, "LlamaModel", "LlamaConfig", own, **({} if name == "llama" else {"of": "llama"}))


def rope(kind: str, theta: float = 500.0, **more) -> dict:
    """Rope parameters as transformers 5 writes them."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


CASES = [
    case("bert", "BertModel", "BertConfig", BERT, pair=True),
    case(
        "bert-old-names", "BertForMaskedLM", "BertConfig", {**BERT, "hidden_act": "relu"}, dtype="bfloat16"
    ),
    case("roberta", "RobertaModel", "RobertaConfig", ROBERTA),
    case("xlm-roberta", "XLMRobertaModel", "XLMRobertaConfig", ROBERTA, of="roberta"),
    case("camembert", "CamembertModel", "CamembertConfig", ROBERTA, of="roberta"),
    case(
        "distilbert",
        "DistilBertModel",
        "DistilBertConfig",
        {
            "vocab_size": 32,
            "dim": 16,
            "hidden_dim": 24,
            "n_layers": 2,
            "n_heads": 4,
            "max_position_embeddings": 32,
        },
    ),
    case("electra", "ElectraModel", "ElectraConfig", {**BERT, "embedding_size": 12}, pair=True),
    case(
        "albert",
        "AlbertModel",
        "AlbertConfig",
        {**BERT, "embedding_size": 12, "num_hidden_layers": 3, "hidden_act": "gelu_new"},
        pair=True,
    ),
    case(
        "modernbert",
        "ModernBertModel",
        "ModernBertConfig",
        {
            **SMALL,
            **HEADS,
            **IDS,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "num_hidden_layers": 3,
            "local_attention": 4,
            "global_attn_every_n_layers": 2,
            "norm_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    case(
        "gpt2",
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 32, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32},
    ),
    case(
        "gpt2-by-layer",
        "GPT2Model",
        "GPT2Config",
        {
            "vocab_size": 32,
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 32,
            "n_inner": 20,
            "scale_attn_by_inverse_layer_idx": True,
            "activation_function": "silu",
        },
        dtype="float16",
    ),
    case(
        "gptj",
        "GPTJModel",
        "GPTJConfig",
        {"vocab_size": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "rotary_dim": 4},
    ),
    case(
        "gpt-neox",
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {**SMALL, "num_attention_heads": 2, "rotary_pct": 0.5, "max_position_embeddings": 32},
    ),
    case(
        "gpt-neox-serial",
        "GPTNeoXModel",
        "GPTNeoXConfig",
        {
            **SMALL,
            "num_attention_heads": 2,
            "max_position_embeddings": 32,
            "use_parallel_residual": False,
            "attention_bias": False,
            "hidden_act": "gelu_new",
        },
    ),
    case(
        "opt",
        "OPTForCausalLM",
        "OPTConfig",
        {
            "vocab_size": 32,
            "hidden_size": 16,
            "ffn_dim": 24,
            "num_hidden_layers": 2,
            **HEADS,
            "max_position_embeddings": 32,
            "word_embed_proj_dim": 16,
        },
    ),
    case(
        "opt-post-norm",
        "OPTModel",
        "OPTConfig",
        {
            "vocab_size": 32,
            "hidden_size": 16,
            "ffn_dim": 24,
            "num_hidden_layers": 2,
            **HEADS,
            "max_position_embeddings": 32,
            "word_embed_proj_dim": 12,
            "do_layer_norm_before": False,
        },
    ),
    case(
        "bloom",
        "BloomModel",
        "BloomConfig",
        {"vocab_size": 32, "hidden_size": 18, "n_layer": 2, "n_head": 6},
    ),
    case(
        "bloom-post",
        "BloomForCausalLM",
        "BloomConfig",
        {
            "vocab_size": 32,
            "hidden_size": 16,
            "n_layer": 2,
            "n_head": 4,
            "apply_residual_connection_post_layernorm": True,
        },
    ),
    case(
        "falcon",
        "FalconForCausalLM",
        "FalconConfig",
        {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    ),
    case(
        "falcon-new",
        "FalconModel",
        "FalconConfig",
        {
            "vocab_size": 32,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
            "bias": True,
            "ffn_hidden_size": 40,
        },
    ),
    case(
        "falcon-alibi",
        "FalconModel",
        "FalconConfig",
        {
            "vocab_size": 32,
            "hidden_size": 18,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "multi_query": False,
            "alibi": True,
            "parallel_attn": False,
            "bias": True,
            "ffn_hidden_size": 24,
        },
        attention="sdpa",  # as the model was trained; the eager one adds ALiBi twice
    ),
    llama("llama", attention_bias=True, mlp_bias=True, **rope("default")),
    llama("llama-linear", attention_bias=True, mlp_bias=True, **rope("linear", factor=4.0)),
    llama("llama-dynamic", attention_bias=True, mlp_bias=True, **rope("dynamic", factor=2.0))
    | {
        "length": 12,
        "settings": {
            **LLAMA,
            "head_dim": 8,
            "rms_norm_eps": 1e-3,
            "attention_bias": True,
            "mlp_bias": True,
            **rope("dynamic", factor=2.0),
            "max_position_embeddings": 8,
        },
    },
    llama(
        "llama-yarn",
        attention_bias=True,
        mlp_bias=True,
        **rope("yarn", factor=8.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=0.5),
    ),
    llama(
        "llama-longrope",
        attention_bias=True,
        mlp_bias=True,
        **rope(
            "longrope",
            factor=4.0,
            original_max_position_embeddings=16,
            short_factor=[1.0, 1.5, 2.0, 3.0],
            long_factor=[2.0, 3.0, 5.0, 9.0],
        ),
    ),
    llama(
        "llama-longrope-long",
        attention_bias=True,
        mlp_bias=True,
        **rope(
            "longrope",
            factor=4.0,
            original_max_position_embeddings=4,
            short_factor=[1.0, 1.5, 2.0, 3.0],
            long_factor=[2.0, 3.0, 5.0, 9.0],
        ),
    ),
    llama(
        "llama-llama3",
        attention_bias=True,
        mlp_bias=True,
        **rope(
            "llama3",
            theta=50.0,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
    ),
    llama("llama-old-config", attention_bias=True, mlp_bias=True, **rope("linear", theta=300.0, factor=2.0))
    | {
        "old": {"rope_theta": 300.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "old_without": ["rope_parameters", "dtype"],
    },
    case(
        "mistral",
        "MistralForCausalLM",
        "MistralConfig",
        {**LLAMA, "sliding_window": 3},
        save={"max_shard_size": "10KB"},
    ),
    case(
        "mixtral",
        "MixtralForCausalLM",
        "MixtralConfig",
        {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    case(
        "qwen2",
        "Qwen2Model",
        "Qwen2Config",
        {
            **LLAMA,
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 4,
            "max_window_layers": 1,
        },
    ),
    case("qwen3", "Qwen3ForCausalLM", "Qwen3Config", {**LLAMA, "head_dim": 6, "attention_bias": True}),
    case(
        "qwen3-moe",
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {
            **LLAMA,
            "head_dim": 4,
            "num_hidden_layers": 3,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
            "norm_topk_prob": True,
            "mlp_only_layers": [0],
        },
    ),
    case("gemma", "GemmaForCausalLM", "GemmaConfig", {**LLAMA, "head_dim": 6, "attention_bias": True}),
    case(
        "gemma2",
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            **LLAMA,
            "head_dim": 6,
            "query_pre_attn_scalar": 10,
            "sliding_window": 3,
            "attn_logit_softcapping": 2.0,
        },
    ),
    case(
        "gemma3",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        GEMMA3,
    ),
    case(
        "gemma3-images",
        "Gemma3Model",
        "Gemma3Config",
        {
            "text_config": {"model_type": "gemma3_text", **GEMMA3, "rope_parameters": None},
            "vision_config": {**IMAGE, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1},
            "mm_tokens_per_image": 4,
        },
    ),
    case("exaone", "LlamaForCausalLM", "ExaoneConfig", {**LLAMA, "head_dim": 6}),
    case("hunyuan", "HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config", {**LLAMA, "head_dim": 6}),
    case("phi", "PhiForCausalLM", "PhiConfig", {**LLAMA, "hidden_size": 32, "qk_layernorm": True}),
    case(
        "phi3",
        "Phi3ForCausalLM",
        "Phi3Config",
        {**LLAMA, "hidden_size": 32, "sliding_window": 4, **rope("default", partial_rotary_factor=0.5)},
    ),
    case("olmo2", "Olmo2ForCausalLM", "Olmo2Config", {**LLAMA, "attention_bias": True}),
    case(
        "cohere",
        "CohereForCausalLM",
        "CohereConfig",
        {**LLAMA, "use_qk_norm": True, "attention_bias": True},
    ),
    case(
        "stablelm",
        "StableLmForCausalLM",
        "StableLmConfig",
        {**LLAMA, "hidden_size": 32, "use_qkv_bias": True, "qk_layernorm": True},
    ),
    case(
        "stablelm-parallel",
        "StableLmModel",
        "StableLmConfig",
        {
            **LLAMA,
            "hidden_size": 32,
            "use_parallel_residual": True,
            **rope("default", partial_rotary_factor=0.5),
        },
    ),
    case("starcoder2", "Starcoder2ForCausalLM", "Starcoder2Config", {**LLAMA, "sliding_window": 4}),
    case(
        "granite",
        "GraniteForCausalLM",
        "GraniteConfig",
        {
            **LLAMA,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.6,
            "embedding_multiplier": 2.5,
            "attention_bias": True,
        },
    ),
    case(
        "smollm3",
        "SmolLM3ForCausalLM",
        "SmolLM3Config",
        {**LLAMA, "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1]},
    ),
    case(
        "gpt-oss",
        "GptOssForCausalLM",
        "GptOssConfig",
        {
            **LLAMA,
            "head_dim": 6,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 3,
            **rope(
                "yarn",
                factor=8.0,
                original_max_position_embeddings=8,
                beta_fast=4.0,
                beta_slow=1.0,
                truncate=False,
            ),
        },
    ),
    case(
        "deepseek-v3",
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **SMALL,
            **IDS,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "q_lora_rank": 6,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 4,
            "qk_rope_head_dim": 4,
            "v_head_dim": 6,
            "first_k_dense_replace": 1,
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 8,
            "n_shared_experts": 2,
            "routed_scaling_factor": 1.7,
            **rope(
                "yarn",
                factor=8.0,
                original_max_position_embeddings=8,
                beta_fast=4.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=0.8,
            ),
        },
    ),
    case(
        "deepseek-v3-plain",
        "DeepseekV3Model",
        "DeepseekV3Config",
        {
            **SMALL,
            **IDS,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "q_lora_rank": None,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 4,
            "qk_rope_head_dim": 4,
            "v_head_dim": 6,
            "first_k_dense_replace": 2,
            "rope_interleave": False,
            "attention_bias": True,
            **rope("default"),
        },
    ),
    case(
        "t5",
        "T5ForConditionalGeneration",
        "T5Config",
        {
            **T5,
            "d_kv": 6,
            "num_heads": 3,
            "relative_attention_num_buckets": 6,
            "relative_attention_max_distance": 8,
        },
        **BOTH,
    ),
    case("t5-gated", "T5EncoderModel", "T5Config", {**T5, "feed_forward_proj": "gated-gelu"}),
    case("mt5", "MT5ForConditionalGeneration", "MT5Config", {**T5, "num_decoder_layers": 1}, **BOTH),
    case(
        "whisper",
        "WhisperModel",
        "WhisperConfig",
        {
            "vocab_size": 32,
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "num_mel_bins": 8,
            "max_source_positions": 10,
            "max_target_positions": 32,
            **IDS,
            "decoder_start_token_id": 1,
        },
        **{**BOTH, "inputs": {"input_features": (8, 20), "decoder_input_ids": None}},
    ),
    case("vit", "ViTModel", "ViTConfig", IMAGE, inputs={"pixel_values": (3, 12, 12)}),
    case("clip-text", "CLIPTextModel", "CLIPTextConfig", CLIP_TEXT),
    case("clip-vision", "CLIPVisionModel", "CLIPVisionConfig", IMAGE, inputs={"pixel_values": (3, 12, 12)}),
    case(
        "clip",
        "CLIPModel",
        "CLIPConfig",
        {"text_config": CLIP_TEXT, "vision_config": IMAGE, "projection_dim": 8},
        inputs={"input_ids": None, "pixel_values": (3, 12, 12)},
        parts={"": "text_model_output.", "vision_": "vision_model_output."},
    ),
    case("bart", "BartModel", "BartConfig", {**BART, "scale_embedding": True}, **BOTH, dtype="bfloat16"),
    case("mbart", "MBartModel", "MBartConfig", {**BART, "scale_embedding": True}, **BOTH, dtype="bfloat16"),
    case("umt5", "UMT5ForConditionalGeneration", "UMT5Config", T5, **BOTH, dtype="bfloat16"),
    case(
        "esm", "EsmModel", "EsmConfig", {**ESM, "position_embedding_type": "rotary", "token_dropout": True}
    ),
    case("deberta-v2", "DebertaV2Model", "DebertaV2Config", DEBERTA, dtype="bfloat16"),
    case(
        "deberta-own",
        "DebertaV2Model",
        "DebertaV2Config",
        {**DEBERTA, "share_att_key": False, "position_buckets": -1, "pos_att_type": ["c2p", "p2c"]}
        | {"max_relative_positions": 4, "type_vocab_size": 2, "position_biased_input": True},
        pair=True,
    ),
    case(
        "t5gemma",
        "T5GemmaModel",
        "T5GemmaConfig",
        {"encoder": GEMMA_PART, "decoder": {**GEMMA_PART, "hidden_size": 12, "sliding_window": 3}},
        **BOTH,
        dtype="bfloat16",
    ),
    case("esm-1b", "EsmModel", "EsmConfig", {**ESM, "emb_layer_norm_before": True}, dtype="bfloat16"),
    case("data2vec-text", "Data2VecTextModel", "Data2VecTextConfig", ROBERTA, dtype="bfloat16"),
    case(
        "roberta-prelayernorm",
        "RobertaPreLayerNormModel",
        "RobertaPreLayerNormConfig",
        ROBERTA,
        dtype="bfloat16",
    ),
    case("xlm-roberta-xl", "XLMRobertaXLModel", "XLMRobertaXLConfig", ROBERTA, dtype="bfloat16"),
    case("pegasus", "PegasusModel", "PegasusConfig", {**BART, "scale_embedding": True}, **BOTH),
    case("blenderbot", "BlenderbotModel", "BlenderbotConfig", BART, **BOTH, dtype="bfloat16"),
    case(
        "lfm2",
        "Lfm2Model",
        "Lfm2Config",
        {**LLAMA, "intermediate_size": 36, "block_multiple_of": 4}
        | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_bias": True},
        dtype="bfloat16",
    ),
    case("m2m_100", "M2M100Model", "M2M100Config", BART, **BOTH, dtype="bfloat16"),
    case("wav2vec2", "Wav2Vec2Model", "Wav2Vec2Config", SOUND, **HEARD),
    case("hubert", "HubertModel", "HubertConfig", {**SOUND, "do_stable_layer_norm": True}, **HEARD),
    case("data2vec-audio", "Data2VecAudioModel", "Data2VecAudioConfig", SOUND, **HEARD),
    case("unispeech", "UniSpeechModel", "UniSpeechConfig", SOUND, **HEARD),
    case("unispeech-sat", "UniSpeechSatModel", "UniSpeechSatConfig", SOUND, **HEARD),
    case("marian", "MarianModel", "MarianConfig", BART, **BOTH, dtype="bfloat16"),
    case(
        "dinov2",
        "Dinov2Model",
        "Dinov2Config",
        {**DINO, "mlp_ratio": 3},
        inputs={"pixel_values": (3, 12, 12)},
        dtype="bfloat16",
    ),
    case(
        "dinov2-with-registers",
        "Dinov2WithRegistersModel",
        "Dinov2WithRegistersConfig",
        {**DINO, "use_swiglu_ffn": True, "num_register_tokens": 2},
        inputs={"pixel_values": (3, 12, 12)},
        dtype="bfloat16",
    ),
    case(
        "dinov3",
        "DINOv3ViTModel",
        "DINOv3ViTConfig",
        {**IMAGE, "hidden_size": 32, "use_gated_mlp": True, "num_register_tokens": 2, "proj_bias": False},
        inputs={"pixel_values": (3, 12, 8)},
        dtype="bfloat16",
    ),
    case(
        "siglip2",
        "Siglip2Model",
        "Siglip2Config",
        {"text_config": CLIP_TEXT, "vision_config": NAFLEX},
        inputs={
            "input_ids": None,
            "pixel_values": (8, 48),
            "pixel_attention_mask": [1] * 8,
            "spatial_shapes": [2, 4],
        },
        parts={"": "text_model_output.", "vision_": "vision_model_output."},
        dtype="bfloat16",
    ),
    case(
        "siglip-vision",
        "SiglipVisionModel",
        "SiglipVisionConfig",
        IMAGE,
        inputs={"pixel_values": (3, 12, 12)},
        dtype="bfloat16",
    ),
    case(
        "siglip2-vision",
        "Siglip2VisionModel",
        "Siglip2VisionConfig",
        NAFLEX,
        inputs={"pixel_values": (8, 48), "pixel_attention_mask": [1] * 8, "spatial_shapes": [4, 2]},
        dtype="bfloat16",
    ),
    case("deit", "DeiTModel", "DeiTConfig", IMAGE, inputs={"pixel_values": (3, 12, 12)}, dtype="bfloat16"),
    case(
        "siglip",
        "SiglipModel",
        "SiglipConfig",
        {"text_config": CLIP_TEXT, "vision_config": IMAGE},
        inputs={"input_ids": None, "pixel_values": (3, 12, 12)},
        parts={"": "text_model_output.", "vision_": "vision_model_output."},
        dtype="bfloat16",
    ),
    case(
        "llama4",
        "Llama4ForConditionalGeneration",
        "Llama4Config",
        {
            "text_config": {
                "model_type": "llama4_text",
                **LLAMA,
                "head_dim": 6,
                "intermediate_size_mlp": 20,
            }
            | {"attention_chunk_size": 3, "floor_scale": 2, "attn_scale": 0.5, "num_hidden_layers": 3}
            | {"num_local_experts": 4, "num_experts_per_tok": 2, "no_rope_layers": [1, 0, 1]}
            | {"interleave_moe_layer_step": 2},
            "vision_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
            | {"intermediate_size": 8, "vision_output_dim": 8, "image_size": 12, "patch_size": 4}
            | {"projector_input_dim": 8, "projector_output_dim": 8},
        },
        called="language_model.model",  # the whole fails without an image
        dtype="bfloat16",
    ),
    case("gemma3n_text", "Gemma3nTextModel", "Gemma3nTextConfig", GEMMA3N, reads="input_layernorm")
    | {"dtype": "bfloat16"},
    case(
        "gemma3n",
        "Gemma3nModel",
        "Gemma3nConfig",
        {
            "text_config": {"model_type": "gemma3n_text", **GEMMA3N, "intermediate_size": 24}
            | {"num_hidden_layers": 3, "num_kv_shared_layers": 0, "altup_correct_scale": False}
            | {"layer_types": GEMMA3N["layer_types"][:3], "activation_sparsity_pattern": None},
            "vision_config": {"hidden_size": 8, "vocab_size": 2, "vocab_offset": 32, "label_names": ["a"]},
            "audio_config": {"hidden_size": 8, "vocab_size": 2, "vocab_offset": 34}
            | {"conf_num_attention_heads": 1, "conf_num_hidden_layers": 1, "input_feat_size": 8}
            | {"sscp_conv_channel_size": [2, 2]},
        },
        reads="input_layernorm",
        dtype="bfloat16",
    ),
    case(
        "gemma4_text",
        "Gemma4TextModel",
        "Gemma4TextConfig",
        {**LLAMA, "head_dim": 6, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 32}
        | {"num_hidden_layers": 5, "num_kv_shared_layers": 2, "use_double_wide_mlp": True}
        | {"sliding_window": 3, "global_head_dim": 8, "num_global_key_value_heads": 1}
        | {
            "layer_types": [
                f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full")
            ]
        }
        | {"attention_k_eq_v": True},
        dtype="bfloat16",
    ),
    case(
        "gemma4",
        "Gemma4Model",
        "Gemma4Config",
        {
            "text_config": {"model_type": "gemma4_text", **LLAMA, "head_dim": 6, "sliding_window": 3}
            | {"num_hidden_layers": 3, "layer_types": ["sliding_attention", *["full_attention"] * 2]}
            | {"global_head_dim": 8, "num_global_key_value_heads": 1, "attention_k_eq_v": True}
            | {"hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision"}
            | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8},
            "vision_config": None,
            "audio_config": None,
        },
        dtype="bfloat16",
    ),
    case(
        "qwen2-vl",
        "Qwen2VLModel",
        "Qwen2VLConfig",
        {"text_config": {"model_type": "qwen2_vl_text", **SECTIONS}, "vision_config": PATCHES},
        dtype="bfloat16",
    ),
    case(
        "qwen2-5-vl",
        "Qwen2_5_VLModel",
        "Qwen2_5_VLConfig",
        {
            "text_config": {"model_type": "qwen2_5_vl_text", **SECTIONS},
            "vision_config": {**PATCHES, "intermediate_size": 8, "out_hidden_size": 16},
        },
        dtype="bfloat16",
    ),
    case(
        "qwen3-5",
        "Qwen3_5Model",
        "Qwen3_5Config",
        {
            "text_config": {"model_type": "qwen3_5_text", **STATEFUL},
            "vision_config": {**PATCHES, "intermediate_size": 8, "out_hidden_size": 16}
            | {"num_position_embeddings": 4},
        },
        dtype="bfloat16",
    ),
    case(
        "qwen3-5-moe",
        "Qwen3_5MoeModel",
        "Qwen3_5MoeConfig",
        {
            "text_config": {"model_type": "qwen3_5_moe_text", **STATEFUL, "intermediate_size": None}
            | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
            | {"shared_expert_intermediate_size": 6},
            "vision_config": {**PATCHES, "intermediate_size": 8, "out_hidden_size": 16}
            | {"num_position_embeddings": 4},
        },
        dtype="bfloat16",
    ),
    case(
        "qwen3-vl",
        "Qwen3VLModel",
        "Qwen3VLConfig",
        {
            "text_config": {"model_type": "qwen3_vl_text", **SECTIONS, "head_dim": 4},
            "vision_config": {**PATCHES, "intermediate_size": 8, "out_hidden_size": 16}
            | {"num_position_embeddings": 4, "deepstack_visual_indexes": [0]},
        },
        dtype="bfloat16",
    ),
    case(
        "qwen3-vl-moe",
        "Qwen3VLMoeModel",
        "Qwen3VLMoeConfig",
        {
            "text_config": {"model_type": "qwen3_vl_moe_text", **SECTIONS, "head_dim": 4}
            | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12},
            "vision_config": {**PATCHES, "intermediate_size": 8, "out_hidden_size": 16}
            | {"num_position_embeddings": 4, "deepstack_visual_indexes": [0]},
        },
        dtype="bfloat16",
    ),
    case(
        "minimax_m2",
        "MiniMaxM2Model",
        "MiniMaxM2Config",
        {**LLAMA, "head_dim": 6, "num_local_experts": 4, "num_experts_per_tok": 2},
        dtype="bfloat16",
    ),
    case(  # as it was released: columns that turn, in place of their share
        "minimax-m2-rotary-dim",
        "MiniMaxM2Model",
        "MiniMaxM2Config",
        {**LLAMA, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
        dtype="bfloat16",
        old={"rotary_dim": 4, "rope_theta": 300.0, "use_qk_norm": True, "use_mtp": True},
        old_without=["rope_parameters"],
    ),
]
