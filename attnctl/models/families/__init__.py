"""The families of models: an entry each, a table of where things are and what they are called.

An entry has what the checkpoint calls its tensors and, of `attnctl.models.family.DEFAULTS`, the settings in
which the family differs; `HUNYUAN` in `llama.py` is a short one. A setting is a value, a key of config.json
and what it may say (`count`, `real`, `flag`, `word`, …), or what follows from several (`from_keys`,
`by_layer`). These are all the keys that the family reads; any other that says something is refused by name,
unless it changes nothing anywhere (`INERT` in `models/description.py`) or here (`inert`, `only`). Nothing
here computes.

To add one, write the entry and its line in `FAMILIES`, with transformers and torch installed. The tests
then draw a tiny checkpoint of every parameter, its config.json read off the entry (sizes that are not small
by themselves, of experts say, stand in its `example`), and hold weights and hidden states of every layer to
1e-5 of transformers; and they move every key of its config class, one at a time, and tell those that are
neither read as transformers reads them nor refused by name. `python tests/models/make.py NAME` and
`make_sweep.py NAME` then write what transformers said, which is all that the tests of CI ask; of a
`head`, which makes logits, `make_logits.py` does. A family that takes more than tokens, or has several
stacks, says how it is called in a case of `tests/models/cases.py`.
"""

from __future__ import annotations

from attnctl.base.plugins import added
from attnctl.models.families import (
    encoders,
    experts,
    gpt,
    hybrids,
    llama,
    llama_kin,
    mixtures,
    speech,
    states,
    windows,
)
from attnctl.models.family import Stack, derive_stack

FAMILIES: dict[str, dict[str, Stack]] = {
    "bert": {"": encoders.BERT},
    "roberta": {"": encoders.ROBERTA},
    "xlm-roberta": {"": encoders.ROBERTA},
    "camembert": {"": encoders.ROBERTA},
    "electra": {"": encoders.ELECTRA},
    "mpnet": {"": encoders.MPNET},
    "data2vec-text": {"": encoders.ROBERTA},
    "roberta-prelayernorm": {"": encoders.ROBERTA_PRELAYERNORM},
    "xlm-roberta-xl": {"": encoders.XLM_ROBERTA_XL},
    "deberta-v2": {"": encoders.DEBERTA_V2},
    "esm": {"": encoders.ESM},
    "distilbert": {"": encoders.DISTILBERT},
    "albert": {"": encoders.ALBERT},
    "modernbert": {"": encoders.MODERNBERT},
    "gpt2": {"": gpt.GPT2},
    "gptj": {"": gpt.GPTJ},
    "gpt_neox": {"": gpt.GPT_NEOX},
    "opt": {"": gpt.OPT},
    "bloom": {"": gpt.BLOOM},
    "falcon": {"": gpt.FALCON},
    "llama": {"": llama.LLAMA},
    "mistral": {"": llama.MISTRAL},
    "mixtral": {"": experts.MIXTRAL},
    "qwen2": {"": llama.QWEN2},
    "qwen3": {"": llama.QWEN3},
    "qwen3_moe": {"": experts.QWEN3_MOE},
    "gemma": {"": llama.GEMMA},
    "gemma2": {"": llama.GEMMA2},
    "gemma3_text": {"": llama.GEMMA3},
    "gemma3": {"": derive_stack(llama.GEMMA3, section="text_config", within="language_model.")},
    "gemma3n_text": {"": windows.GEMMA3N},
    "gemma3n": {"": derive_stack(windows.GEMMA3N, section="text_config", within="language_model.")},
    "gemma4_text": {"": windows.GEMMA4},
    "gemma4": {"": derive_stack(windows.GEMMA4, section="text_config", within="language_model.")},
    "hunyuan_v1_dense": {"": llama.HUNYUAN},
    "phi": {"": llama.PHI},
    "phi3": {"": llama.PHI3},
    "olmo": {"": llama.OLMO},
    "olmo2": {"": llama.OLMO2},
    "cohere": {"": llama.COHERE},
    "stablelm": {"": llama.STABLELM},
    "starcoder2": {"": llama.STARCODER2},
    "granite": {"": llama.GRANITE},
    "smollm3": {"": llama.SMOLLM3},
    "helium": {"": llama.HELIUM},
    "arcee": {"": llama.ARCEE},
    "seed_oss": {"": llama.SEED_OSS},
    "ernie4_5": {"": llama.ERNIE4_5},
    "nemotron": {"": llama.NEMOTRON},
    "glm": {"": llama.GLM},
    "glm4": {"": llama.GLM4},
    "apertus": {"": llama_kin.APERTUS},
    "nanochat": {"": llama_kin.NANOCHAT},
    "bitnet": {"": llama_kin.BITNET},
    "internlm3": {"": llama_kin.INTERNLM3},
    "exaone": {"": llama_kin.EXAONE},
    "jais2": {"": llama_kin.JAIS2},
    "hyperclovax": {"": llama_kin.HYPERCLOVAX},
    "cohere2": {"": windows.COHERE2},
    "olmo3": {"": windows.OLMO3},
    "exaone4": {"": windows.EXAONE4},
    "gpt_oss": {"": experts.GPT_OSS},
    "deepseek_v3": {"": experts.DEEPSEEK_V3},
    "deepseek_v2": {"": experts.DEEPSEEK_V2},
    "glm4_moe": {"": experts.GLM4_MOE},
    "solar_open": {"": experts.SOLAR_OPEN},
    "dots1": {"": experts.DOTS1},
    "minimax_m2": {"": experts.MINIMAX_M2},
    "olmoe": {"": experts.OLMOE},
    "flex_olmo": {"": experts.FLEX_OLMO},
    "qwen2_moe": {"": experts.QWEN2_MOE},
    "granitemoe": {"": experts.GRANITEMOE},
    "phimoe": {"": experts.PHIMOE},
    "hunyuan_v1_moe": {"": mixtures.HUNYUAN_MOE},
    "ernie4_5_moe": {"": mixtures.ERNIE4_5_MOE},
    "qwen3_vl_moe_text": {"": mixtures.QWEN3_VL_MOE},
    "qwen3_vl_moe": {
        "": derive_stack(mixtures.QWEN3_VL_MOE, section="text_config", within="language_model.")
    },
    "granitemoeshared": {"": mixtures.GRANITEMOESHARED},
    "ministral": {"": windows.MINISTRAL},
    "ministral3": {"": windows.MINISTRAL3},
    "qwen3_next": {"": states.QWEN3_NEXT},
    "qwen3_5_text": {"": states.QWEN3_5},
    "qwen3_5": {"": derive_stack(states.QWEN3_5, section="text_config", within="language_model.")},
    "qwen3_5_moe_text": {"": states.QWEN3_5_MOE},
    "qwen3_5_moe": {"": derive_stack(states.QWEN3_5_MOE, section="text_config", within="language_model.")},
    "granitemoehybrid": {"": hybrids.GRANITEMOEHYBRID},
    "nemotron_h": {"": hybrids.NEMOTRON_H},
    "bamba": {"": hybrids.BAMBA},
    "lfm2": {"": hybrids.LFM2},
    "lfm2_moe": {"": hybrids.LFM2_MOE},
    "mistral4": {"": experts.MISTRAL4},
    "llama4_text": {"": experts.LLAMA4},
    "llama4": {"": derive_stack(experts.LLAMA4, section="text_config", within="language_model.")},
    "cwm": {"": windows.CWM},
    "vaultgemma": {"": windows.VAULTGEMMA},
    "persimmon": {"": llama.PERSIMMON},
    "gpt_bigcode": {"": gpt.GPT_BIGCODE},
    "gpt_neo": {"": gpt.GPT_NEO},
    "mpt": {"": gpt.MPT},
    "biogpt": {"": gpt.BIOGPT},
    "qwen2_vl_text": {"": windows.QWEN2_VL},
    "qwen2_5_vl_text": {"": windows.QWEN2_VL},
    "qwen3_vl_text": {"": windows.QWEN3_VL},
    "modernbert-decoder": {"": encoders.MODERNBERT_DECODER},
    "eurobert": {"": encoders.EUROBERT},
    "megatron-bert": {"": encoders.MEGATRON_BERT},
    "nomic_bert": {"": encoders.NOMIC_BERT},
    "mbart": {"": encoders.MBART_ENCODER, "decoder": encoders.MBART_DECODER},
    "pegasus": {"": encoders.PEGASUS_ENCODER, "decoder": encoders.PEGASUS_DECODER},
    "blenderbot": {"": encoders.BLENDERBOT_ENCODER, "decoder": encoders.BLENDERBOT_DECODER},
    "m2m_100": {"": encoders.M2M_ENCODER, "decoder": encoders.M2M_DECODER},
    "bart": {"": encoders.BART_ENCODER, "decoder": encoders.BART_DECODER},
    "marian": {"": encoders.MARIAN_ENCODER, "decoder": encoders.MARIAN_DECODER},
    **{kind: {"": stack} for kind, stack in speech.SOUNDS.items()},
    "deit": {"": encoders.DEIT},
    "siglip": {
        "": derive_stack(encoders.SIGLIP_TEXT, section="text_config", within="text_model."),
        "vision": derive_stack(encoders.SIGLIP_VISION, section="vision_config", within="vision_model."),
    },
    "qwen2_vl": {"": derive_stack(windows.QWEN2_VL, section="text_config", within="language_model.")},
    "qwen2_5_vl": {"": derive_stack(windows.QWEN2_VL, section="text_config", within="language_model.")},
    "qwen3_vl": {"": derive_stack(windows.QWEN3_VL, section="text_config", within="language_model.")},
    "t5": {"": encoders.T5_ENCODER, "decoder": encoders.T5_DECODER},
    "umt5": {"": encoders.UMT5_ENCODER, "decoder": encoders.UMT5_DECODER},
    "mt5": {"": encoders.T5_ENCODER, "decoder": encoders.T5_DECODER},
    "t5gemma": {"": encoders.T5GEMMA_ENCODER, "decoder": encoders.T5GEMMA_DECODER},
    "whisper": {"": encoders.WHISPER_ENCODER, "decoder": encoders.WHISPER_DECODER},
    "vit": {"": encoders.VIT},
    "dinov2": {"": encoders.DINOV2},
    "dinov2_with_registers": {"": encoders.DINOV2_WITH_REGISTERS},
    "dinov3_vit": {"": encoders.DINOV3},
    "siglip_vision_model": {"": encoders.SIGLIP_VISION},
    "siglip2_vision_model": {"": encoders.SIGLIP2_VISION},
    "siglip2": {
        "": derive_stack(encoders.SIGLIP_TEXT, section="text_config", within="text_model."),
        "vision": derive_stack(encoders.SIGLIP2_VISION, section="vision_config", within="vision_model."),
    },
    "clip_text_model": {"": encoders.CLIP_TEXT},
    "clip_vision_model": {"": encoders.CLIP_VISION},
    "clip": {
        "": derive_stack(encoders.CLIP_TEXT, section="text_config", within="text_model."),
        "vision": derive_stack(encoders.CLIP_VISION, section="vision_config", within="vision_model."),
    },
}
"""Every model_type, with its stacks of layers by name; the one without a name comes first."""

FAMILIES |= added("families", dict, taken=FAMILIES, named=False)
TOWERS: dict[str, str] = {
    **dict.fromkeys(
        [
            *("llava", "llava_next", "llava_next_video", "llava_onevision", "vipllava", "video_llava"),
            *("mistral3", "internvl", "aya_vision", "cohere2_vision", "qwen2_audio", "voxtral"),
            *("audioflamingo3", "got_ocr2", "ovis2", "fast_vlm", "deepseek_vl", "granite_speech"),
            *("lighton_ocr", "glmasr", "video_llama_3", "exaone4_5"),
        ],
        "language_model.",
    ),
    **dict.fromkeys(["idefics2", "idefics3", "smolvlm"], "text_model."),
}
"""Models of images or sounds whose text is a family's, by model_type: what its tensors' names have in them.

Their text_config says which family. Each of them is held to transformers, logits too: what a model's code
does between its parts no config.json says.
"""

ATTENTIONS_ONLY = ("aya_vision", "cohere2_vision")
"""Those of which logits are not said: transformers leaves out the scale that Cohere's own have."""

TOWER_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {"hidden_size": 4096, "intermediate_size": 11008},
    "mistral": {"hidden_size": 4096, "intermediate_size": 14336},
    "qwen2": {"hidden_size": 4096, "intermediate_size": 22016},
}
"""What a text_config means by saying nothing: the first LLaVA's says only in what it differs."""

for _sizes in TOWER_DEFAULTS.values():
    _sizes |= {"num_hidden_layers": 32, "num_attention_heads": 32}


def stacks_of(family: str) -> dict[str, Stack]:
    """The stacks of a family, or of the text of a model that is more: llava/llama."""
    if family in FAMILIES:
        return FAMILIES[family]
    wrapper, _, text = family.partition("/")
    stack = derive_stack(FAMILIES[text][""], section="text_config", within=TOWERS[wrapper])
    if wrapper in ATTENTIONS_ONLY:
        stack = derive_stack(stack, head={"unembed": ()})
    return {"": stack}


NEEDS = {
    "something other than attention": "mamba mamba2 falcon_mamba rwkv xlstm",
    "layers that carry a state instead of attending": "falcon_h1 jamba minimax recurrent_gemma zamba2",
    "layers of a gated delta rule": "kimi_linear olmo_hybrid",
    "keys that an indexer chooses for each query": "deepseek_v32 deepseek_v4 glm_moe_dsa",
    "vectors of distances": "deberta xlnet wav2vec2-conformer",
    "windows beside tokens that all see": "longformer big_bird longt5",
    "the difference of two attentions": "diffllama",
}

LACKING = {kind: need for need, kinds in NEEDS.items() for kind in kinds.split()}
"""What types of models need that no family has, by model_type: said where one is refused."""
