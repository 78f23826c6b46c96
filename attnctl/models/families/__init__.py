"""The families of models: an entry each, a table of where things are and what they are called.

An entry has what the checkpoint calls its tensors and, of `attnctl.models.family.DEFAULTS`, the settings in
which the family differs; `HUNYUAN` in `llama.py` is a short one. A setting is a value, a key of config.json
and what it may say (`count`, `number`, `flag`, `text`, …), or what follows from several (`derive`,
`by_layer`). These are all the keys that the family reads; any other that says something is refused by name,
unless it changes nothing anywhere (`INERT` in `models/description.py`) or here (`inert`, `only`). Nothing
here computes.

To add one, write the entry and its line in `FAMILIES`, with transformers and torch installed. The tests
then draw a tiny checkpoint of every parameter, its config.json read off the entry (sizes that are not small
by themselves, of experts say, stand in its `example`), and hold weights and hidden states of every layer to
1e-5 of transformers; and they move every key of its config class, one at a time, and tell those that are
neither read as transformers reads them nor refused by name. `python tests/models/make.py NAME` and
`make_sweep.py NAME` then write what transformers said, which is all that the tests of CI ask. A family that
takes more than tokens, or has several stacks, says how it is called in a case of `tests/models/cases.py`.
"""

from __future__ import annotations

from attnctl.models.families import encoders, experts, gpt, llama, speech_and_text
from attnctl.models.family import Stack, derive_stack

FAMILIES: dict[str, dict[str, Stack]] = {
    "bert": {"": encoders.BERT},
    "roberta": {"": encoders.ROBERTA},
    "xlm-roberta": {"": encoders.ROBERTA},
    "camembert": {"": encoders.ROBERTA},
    "electra": {"": encoders.ELECTRA},
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
    "hunyuan_v1_dense": {"": llama.HUNYUAN},
    "phi": {"": llama.PHI},
    "phi3": {"": llama.PHI3},
    "olmo2": {"": llama.OLMO2},
    "cohere": {"": llama.COHERE},
    "stablelm": {"": llama.STABLELM},
    "starcoder2": {"": llama.STARCODER2},
    "granite": {"": llama.GRANITE},
    "smollm3": {"": llama.SMOLLM3},
    "gpt_oss": {"": experts.GPT_OSS},
    "deepseek_v3": {"": experts.DEEPSEEK_V3},
    "t5": {"": speech_and_text.T5_ENCODER, "decoder": speech_and_text.T5_DECODER},
    "mt5": {"": speech_and_text.T5_ENCODER, "decoder": speech_and_text.T5_DECODER},
    "whisper": {"": speech_and_text.WHISPER_ENCODER, "decoder": speech_and_text.WHISPER_DECODER},
    "vit": {"": encoders.VIT},
    "clip_text_model": {"": encoders.CLIP_TEXT},
    "clip_vision_model": {"": encoders.CLIP_VISION},
    "clip": {
        "": derive_stack(encoders.CLIP_TEXT, section="text_config", within="text_model."),
        "vision": derive_stack(encoders.CLIP_VISION, section="vision_config", within="vision_model."),
    },
}
"""Every model_type, with its stacks of layers by name; the one without a name comes first."""
