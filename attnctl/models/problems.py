"""Find what a config.json says that cannot be, or that the family of the model does not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from attnctl.base.words import did_you_mean, one_of, quote
from attnctl.models.activations import ACTIVATIONS
from attnctl.models.families import FAMILIES
from attnctl.models.family import DEFAULTS, Stack
from attnctl.models.keys import Config, keys_of, value_of

MOST = {"layers": 10_000, "d_k": 2**16}
TYPES = {"full_attention": False, "sliding_attention": True}
"""The types of layers, and whether each has a window."""

OFF = {"partial_rotary_factor": 1.0}
"""Keys that say nothing where they say this; null, false, 0 and what is empty say nothing anyway."""

NAMES = (
    # the file itself, and how it is loaded
    r"_.*|architectures|auto_map|model_type|transformers_version|name_or_path|tokenizer_class|language",
    r"(?:torch_)?dtype|torchscript|use_bfloat16|tie_\w+|gradient_checkpointing|transformers\.js_config",
    r"attn_implementation|experts_implementation|is_llama_config|unsloth_\w+",
    # what a call returns, and the cache it keeps
    r"return_dict|output_\w+|use_cache|cache_implementation|is_encoder_decoder|chunk_size_feed_forward",
    # training
    r"\w*dropout\w*|\w*_pdrop|\w*layerdrop|init_std|initializer_\w+|\w*aux_loss\w*|router_jitter_noise",
    r"seq_aux|pretraining_tp|mask_(?:time|feature)_\w+|apply_spec_augment",
    # tasks, and what follows the last layer
    r"id2label|label2id|num_labels|problem_type|finetuning_task|task_specific_params|classifier_\w+",
    r"summary_\w+|pooler_\w+|decoder_bias|sparse_pred\w*|projection_dim|logit_scale\w*|logits_scaling",
    r"scale_decoder_outputs|final_logit_softcapping|use_weighted_layer_sum|median_filter_width",
    # generation
    r"\w*token_(?:ids?|index)|prefix|(?:max|min)_length|max_new_tokens|do_sample|early_stopping|num_beams",
    r"num_beam_groups|temperature|top_[kp]|typical_p|\w+_penalty|\w*no_repeat_ngram_size|bad_words_ids",
    r"num_return_sequences|remove_invalid_values|(?:begin_)?suppress_tokens|forced_decoder_ids",
    # what makes an image or a sound into what comes into layer 0
    r"image_size|patch_size|num_channels|encoder_stride|num_mel_bins|max_source_positions",
    # how it is computed
    r"\w*softmax_in_fp32|\w+_fusion|slow_but_exact|deterministic_flash_attn|reference_compile",
    r"repad_logits_with_grad|skip_bias_add\w*",
    # lengths of training, which no table has
    r"n_ctx|seq_length|model_max_length|max_sequence_length",
)
INERT = re.compile("|".join(NAMES))
"""Keys that change no attention and no hidden state in any family; one may read them all the same."""


def misread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """Keys whose values are of no kind that they may have, and keys that this family does not read."""
    yield from dict.fromkeys(problem for each in stack.keys for problem in each.problems(config))
    for setting in ("layers", "width", "heads", "intermediate"):
        keys = keys_of({**DEFAULTS, **stack.settings}[setting])
        if all(each.value(config) is None for each in keys):
            yield f"no {keys[0].names[0]}"
    for name, setting in stack.only.items():
        said, understood = config.get(name), value_of(setting, config)
        if said is not None and said != understood:
            yield f"{name} {quote(str(said))} is not understood; only {understood}"
    yield from unread(kind, stack, config)


def unread(kind: str, stack: Stack, config: Config) -> Iterator[str]:
    """The keys that say something and that no part of the family reads."""
    parts = (each.understood for each in FAMILIES[kind].values() if each.section == stack.section)
    understood = frozenset[str]().union(*parts)
    for name, said in config.items():
        if said and said != OFF.get(name) and name not in understood and not INERT.fullmatch(name):
            hint = did_you_mean(name, sorted(understood), "leave it out where it changes nothing")
            yield f"{quote(name)} is {quote(str(said))}, but {kind} reads no such key; {hint}"


def impossible(s: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    """Combinations that no model can have, though each key by itself says what it may."""
    key = stack.key_of
    if s["act"] not in ACTIVATIONS:
        yield (
            f"{key('act')}: the function {quote(str(s['act']))} is not known; "
            f"known are {', '.join(ACTIVATIONS)}"
        )
    if s["d_k"] is None:
        yield f"{key('heads')}: {s['heads']} heads do not divide {key('width')}, {s['width']}"
    elif s["rotary"] and s["rotary_share"] is s["rotary_size"] is None and (s["d_rope"] or s["d_k"]) % 2:
        name = "d_rope" if s["d_rope"] else "d_k"
        yield f"{key(name)}: {s[name]} columns of a head do not turn in pairs"
    if s["heads"] % s["kv_heads"]:
        yield f"{key('kv_heads')}: {s['kv_heads']} do not divide {key('heads')}, {s['heads']}"
    for name, most in MOST.items():
        if s[name] is not None and s[name] > most:
            yield f"{key(name)}: {s[name]}; {most} are the most"
    if s["experts"] is not None:
        yield from impossible_experts(s, stack)
    if s["types"] is not None:
        yield from impossible_types(s["types"], s["layers"], s["window"])


def impossible_experts(s: Mapping[str, Any], stack: Stack) -> Iterator[str]:
    """Numbers of experts that do not go together."""
    key = stack.key_of
    experts, groups, chosen_groups, chosen = (
        s[name] for name in ("experts", "groups", "chosen_groups", "chosen")
    )
    if experts % groups:
        yield f"{key('groups')}: {groups} do not divide {key('experts')}, {experts}"
    elif chosen_groups > groups:
        yield f"{key('chosen_groups')}: {chosen_groups} cannot be chosen of {groups}"
    elif chosen > chosen_groups * experts // groups:
        most = chosen_groups * experts // groups
        yield f"{key('chosen')}: {chosen} experts cannot be chosen of {most}"


def impossible_types(types: list[str], layers: int, window: int | None) -> Iterator[str]:
    """Types of layers that there are not, or too few of."""
    for each in sorted({*types} - set(TYPES)):
        yield f"layer_types: {quote(each)} is not understood; only {one_of(TYPES)}"
    if len(types) != layers:
        yield f"layer_types: {len(types)} of {layers} layers"
    if window is None and "sliding_attention" in types:
        yield "layer_types: 'sliding_attention', but there is no sliding_window"
