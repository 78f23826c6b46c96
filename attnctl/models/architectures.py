"""The models of GGUF files: what llama.cpp calls them, their keys and tensors, as a family here has them.

An architecture is an entry: which family it is, what its names are there, and what llama.cpp changes of the
numbers. A key that an entry does not read is refused, as one of config.json is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import quote
from attnctl.math import Array, Shape
from attnctl.models.gguf import GGUF, Packed, Texts, read_gguf, stored_tensor
from attnctl.store.header import Stored

Said = Mapping[str, Any]
"""The metadata of an architecture, without its name before each key."""

ConfigRule = Callable[[Said, dict[str, Any]], dict[str, Any]]


def alone(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Architecture:
    """A model as llama.cpp has it.

    `keys` say what its metadata is called in config.json, `read` names keys that `more` makes settings of,
    `names` its modules, `permuted` those whose rows llama.cpp puts in another order, and `raised` the ends
    of names whose numbers it adds 1 to.
    """

    family: str
    keys: Mapping[str, str]
    names: Mapping[str, str]
    read: tuple[str, ...] = ()
    more: ConfigRule = alone
    permuted: tuple[str, ...] = ()
    raised: str = ""
    experts: Mapping[str, str] = field(default_factory=dict)
    finish: Callable[[dict[str, Stored]], dict[str, Stored]] = dict
    """What joins tensors that the family has as one."""


SIZES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "rope.freq_base": "rope_theta",
}
KEYS = {**SIZES, "attention.layer_norm_rms_epsilon": "rms_norm_eps"}

HEAD_SIZES = ("attention.key_length", "attention.value_length", "rope.dimension_count")
ROPE = ("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length")

OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
NAMES = {
    **OUTER,
    **ATTENTION,
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
ROUND_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
MIXTRALS = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{e}.w1",
    "ffn_down_exps": "block_sparse_moe.experts.{e}.w2",
    "ffn_up_exps": "block_sparse_moe.experts.{e}.w3",
}

QWENS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{e}.gate_proj",
    "ffn_up_exps": "mlp.experts.{e}.up_proj",
    "ffn_down_exps": "mlp.experts.{e}.down_proj",
}


def sized(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    """The size of a head, where it is said; all of its columns turn."""
    size = said.get("attention.key_length", said.get("rope.dimension_count"))
    if size is None:
        return {}
    for name in HEAD_SIZES:
        if said.get(name, size) != size:
            raise AttnError(f"{name}: {said[name]}, but a head has {size} columns, all of which turn")
    return {"head_dim": size}


def sized_as_before(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    """For families whose config.json says no size of a head: it must be that of the width."""
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    size = width // heads if width and heads else None
    found = sized(said, config).get("head_dim", size)
    if found != size:
        raise AttnError(f"attention.key_length: {found}, expected {size}")
    return {}


def scaled_rope(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    """The rope that is stretched: by a factor, or by Yarn."""
    kind = said.get("rope.scaling.type", "none")
    if kind == "none":
        return {}
    if kind not in {"linear", "yarn"}:
        raise AttnError(f"rope.scaling.type: {quote(str(kind))}; only none, linear and yarn are read")
    rope: dict[str, Any] = {"rope_type": kind, "factor": said.get("rope.scaling.factor")}
    original = said.get("rope.scaling.original_context_length")
    if kind == "yarn" and original is not None:
        rope["original_max_position_embeddings"] = original
    return {"rope_scaling": rope}


def plain(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    return {**sized(said, config), **scaled_rope(said, config)}


def plain_of_width(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    return {**sized_as_before(said, config), **scaled_rope(said, config)}


def gemma_scale(said: Said, config: dict[str, Any], largest: int) -> int | None:
    """What the scale is the root of: the files do not say it, and the largest of them has another."""
    if said.get("block_count") == largest:
        return int(config["hidden_size"] // config["num_attention_heads"])
    size = said.get("attention.key_length", 256)
    return int(size)


def gemma2(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    scale = gemma_scale(said, config, 46)
    return {**sized(said, config), "query_pre_attn_scalar": scale, "attn_logit_softcapping": 50.0} | {
        "final_logit_softcapping": 30.0,
        **softcaps(said),
    }


def softcaps(said: Said) -> dict[str, Any]:
    keys = ("attn_logit_softcapping", "final_logit_softcapping")
    return {key: said[key] for key in keys if key in said}


def gemma3(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    every = said.get("attention.sliding_window_pattern", 6)
    if every != 6 and not isinstance(every, int):
        raise AttnError("attention.sliding_window_pattern: a list; a number is read")
    full = {"rope_type": "default", "rope_theta": said.get("rope.freq_base", 1e6)}
    scaled = scaled_rope(said, config).get("rope_scaling")
    if scaled:
        full |= scaled
    local = {"rope_type": "default", "rope_theta": said.get("rope.freq_base_swa", 10000.0)}
    return {
        **sized(said, config),
        "query_pre_attn_scalar": gemma_scale(said, config, 62),
        "sliding_window_pattern": every,
        "rope_parameters": {"full_attention": full, "sliding_attention": local},
    }


def phi3(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    size = config["hidden_size"] // config["num_attention_heads"]
    turned = said.get("rope.dimension_count", size)
    found: dict[str, Any] = {"partial_rotary_factor": turned / size}
    if "rope.scaling.original_context_length" in said:
        found["original_max_position_embeddings"] = said["rope.scaling.original_context_length"]
    return found


def gpt_oss(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    """The edges of its Yarn are what llama.cpp takes for granted, and no whole pairs."""
    rope = scaled_rope(said, config).get("rope_scaling")
    edges = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    found = {"rope_scaling": {**rope, **edges} if rope and rope["rope_type"] == "yarn" else rope}
    return {**sized(said, config), **(found if rope else {}), "attention_bias": True}


EXPERT = re.compile(r"(.*\.mlp\.experts\.)(gate|up|down)\.(weight|bias)")


def join_experts(tensors: dict[str, Stored]) -> dict[str, Stored]:
    """The experts of gpt-oss as its family has them: the columns of gate and up side by side, turned."""
    found: dict[str, Stored] = {}
    parts: dict[tuple[str, str], dict[str, Stored]] = {}
    for name, tensor in tensors.items():
        match = EXPERT.fullmatch(name)
        if match is None:
            found[name.replace("self_attn.sinks.weight", "self_attn.sinks")] = tensor
        else:
            parts.setdefault((match[1], match[3]), {})[match[2]] = tensor

    for (start, kind), each in parts.items():
        if set(each) != {"gate", "up", "down"} or each["gate"].shape != each["up"].shape:
            raise AttnError(f"{start}: expected gate, up and down of every expert, found {', '.join(each)}")
        axes = 2 if kind == "bias" else 3
        if any(len(tensor.shape) != axes for tensor in each.values()):
            raise AttnError(f"{start}: expected {axes} axes, of every expert one behind the other")

        gate, up, down = each["gate"], each["up"], each["down"]
        experts, rows = gate.shape[:2]
        if kind == "bias":
            found[f"{start}gate_up_proj_bias"] = joined((experts, 2 * rows), biases_by_turns, gate, up)
            found[f"{start}down_proj_bias"] = down
        else:
            wide = (experts, gate.shape[-1], 2 * rows)
            found[f"{start}gate_up_proj"] = joined(wide, columns_by_turns, gate, up)
            found[f"{start}down_proj"] = joined((experts, down.shape[-1], down.shape[1]), turned, down)
    return found


def joined(shape: Shape, join: Callable[..., Array], *tensors: Stored) -> Stored:
    """A tensor that is made of others, part by part along its first axis."""

    def load(part: Any = ..., room: Array | None = None) -> Array:
        return join(*(tensor.load(part) for tensor in tensors))

    return Stored(
        shape=shape,
        dtype=np.dtype(np.float32),
        load=load,
        type_name=tensors[0].type_name,
        nbytes=sum(tensor.nbytes for tensor in tensors),
    )


def turned(matrix: Array) -> Array:
    return matrix.swapaxes(-1, -2)


def columns_by_turns(gate: Array, up: Array) -> Array:
    """(…, rows, columns) of both as (…, columns, 2·rows): a row of one, then of the other."""
    rows = np.stack([gate, up], axis=-2).reshape(*gate.shape[:-2], -1, gate.shape[-1])
    return rows.swapaxes(-1, -2)


def biases_by_turns(gate: Array, up: Array) -> Array:
    return np.stack([gate, up], axis=-1).reshape(*gate.shape[:-1], -1)


def granite(said: Said, config: dict[str, Any]) -> dict[str, Any]:
    found = plain_of_width(said, config)
    for key, name in GRANITES.items():
        if key in said:
            found[name] = said[key]
    return found


GRANITES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
WINDOW = {"attention.sliding_window": "sliding_window"}
Q_AND_K = ("attn_q", "attn_k")

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture("llama", KEYS, NAMES, read=(*HEAD_SIZES, *ROPE), more=plain, permuted=Q_AND_K),
    "mixtral": Architecture(  # llama, with experts
        "mixtral",
        {**KEYS, "expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
        {**OUTER, **ATTENTION, "ffn_norm": "post_attention_layernorm"},
        read=(*HEAD_SIZES, *ROPE),
        more=lambda said, config: {**plain(said, config), "sliding_window": None},
        permuted=Q_AND_K,
        experts=MIXTRALS,
    ),
    "qwen2": Architecture("qwen2", KEYS, NAMES, read=(*HEAD_SIZES, *ROPE), more=plain_of_width),
    "qwen3": Architecture("qwen3", KEYS, {**NAMES, **HEAD_NORMS}, read=(*HEAD_SIZES, *ROPE), more=plain),
    "qwen3moe": Architecture(
        "qwen3_moe",
        {
            **KEYS,
            "expert_count": "num_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "moe_intermediate_size",
        },
        {**OUTER, **ATTENTION, **HEAD_NORMS, "ffn_norm": "post_attention_layernorm"},
        read=(*HEAD_SIZES, *ROPE),
        more=lambda said, config: {**plain(said, config), "norm_topk_prob": True},
        experts=QWENS,
    ),
    "gpt-oss": Architecture(
        "gpt_oss",
        {
            **KEYS,
            **WINDOW,
            "expert_count": "num_local_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "intermediate_size",
        },
        {
            **OUTER,
            **ATTENTION,
            "attn_sinks": "self_attn.sinks",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_gate_inp": "mlp.router",
            **{f"ffn_{part}_exps": f"mlp.experts.{part}" for part in ("gate", "up", "down")},
        },
        read=(*HEAD_SIZES, *ROPE),
        more=gpt_oss,
        finish=join_experts,
    ),
    "gemma": Architecture("gemma", KEYS, NAMES, read=HEAD_SIZES, more=sized, raised="norm"),
    "gemma2": Architecture(
        "gemma2",
        {**KEYS, **WINDOW},
        {**NAMES, **ROUND_NORMS},
        read=(*HEAD_SIZES, "attn_logit_softcapping", "final_logit_softcapping"),
        more=gemma2,
        raised="norm",
    ),
    "gemma3": Architecture(
        "gemma3_text",
        {**{key: name for key, name in KEYS.items() if key != "rope.freq_base"}, **WINDOW},
        {**NAMES, **ROUND_NORMS, **HEAD_NORMS},
        read=(
            *HEAD_SIZES,
            *ROPE,
            "rope.freq_base",
            "rope.freq_base_swa",
            "attention.sliding_window_pattern",
        ),
        more=gemma3,
        raised="norm",
    ),
    "phi3": Architecture(
        "phi3",
        {**KEYS, **WINDOW},
        {**OUTER, "attn_norm": "input_layernorm", "attn_qkv": "self_attn.qkv_proj"}
        | {"attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm"}
        | {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"},
        read=("rope.dimension_count", "rope.scaling.original_context_length", "rope.scaling.attn_factor"),
        more=phi3,
    ),
    "granite": Architecture(
        "granite", KEYS, NAMES, read=(*HEAD_SIZES, *ROPE, *GRANITES), more=granite, permuted=Q_AND_K
    ),
    "starcoder2": Architecture(
        "starcoder2",
        {**SIZES, "attention.layer_norm_epsilon": "norm_epsilon"},
        {**NAMES, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        read=HEAD_SIZES,
        more=sized_as_before,
    ),
}
"""The architectures that are read, by `general.architecture`; llama with experts is mixtral."""

INERT = re.compile(r"rope\.scaling\.finetuned|attention\.causal|vocab_size|tensor_data_layout")
ROPE_FACTORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)\.(weight|bias)")
WHOLE = re.compile(r"([a-z_]+)\.(weight|bias)")


class Opened(NamedTuple):
    config: dict[str, Any]
    tensors: dict[str, Stored]
    gguf: GGUF


def open_gguf(path: Path) -> Opened:
    """A GGUF file as a config.json and tensors. Raises AttnError with what is not understood."""
    gguf = read_gguf(path)
    name, architecture = architecture_of(gguf, path)
    prefix = f"{gguf.metadata['general.architecture']}."
    said = {
        key.removeprefix(prefix): value for key, value in gguf.metadata.items() if key.startswith(prefix)
    }
    try:
        raise_all(unread(name, architecture, said))
        config = config_of(architecture, said, gguf)
        tensors = architecture.finish(dict(tensors_of(architecture, config, gguf)))
    except AttnError as error:
        raise AttnError(f"{path}: {problem}" for problem in error.problems) from None
    return Opened(config, tensors, gguf)


def architecture_of(gguf: GGUF, path: Path) -> tuple[str, Architecture]:
    parts = gguf.metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        how = f"llama-gguf-split --merge {path} whole.gguf"
        raise AttnError(f"{path}: one of {parts} files; join them: {how}")

    name = gguf.metadata.get("general.architecture")
    if name == "llama" and gguf.metadata.get("llama.expert_count"):
        name = "mixtral"
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise AttnError(f"{path}: general.architecture {quote(str(name))} is not read; read are {known}")
    return name, ARCHITECTURES[name]


def unread(name: str, architecture: Architecture, said: Said) -> Iterator[str]:
    """Keys that say something and that the architecture does not read."""
    known = {*architecture.keys, *architecture.read}
    for key, value in said.items():
        is_said = value.size > 0 if isinstance(value, np.ndarray) else bool(value)
        if is_said and key not in known and not INERT.fullmatch(key):
            yield f"{quote(key)} is {quote(str(value))}, but {name} reads no such key"


def config_of(architecture: Architecture, said: Said, gguf: GGUF) -> dict[str, Any]:
    """What config.json would say."""
    config: dict[str, Any] = {"model_type": architecture.family}
    for key, name in architecture.keys.items():
        value = said.get(key)
        if isinstance(value, (np.ndarray, Texts)):
            raise AttnError(f"{key}: a list; one number for all layers is read")
        if value is not None:
            config[name] = value
    for key in ("embedding_length", "attention.head_count", "block_count"):
        if not isinstance(said.get(key), int) or said[key] < 1:
            raise AttnError(f"{key}: {quote(str(said.get(key)))}, expected a whole number from 1")

    embedded = gguf.tensors.get("token_embd.weight")
    if embedded is None:
        raise AttnError("no tensor token_embd.weight")
    config["vocab_size"] = embedded.shape[0]
    config["tie_word_embeddings"] = "output.weight" not in gguf.tensors
    config |= architecture.more(said, config)
    config |= bias_keys(architecture, gguf)
    return config | rope_of_tensors(architecture, said, config, gguf)


def bias_keys(architecture: Architecture, gguf: GGUF) -> dict[str, Any]:
    """What config.json says of biases, by the tensors that there are."""
    if architecture.family not in {"llama", "qwen3", "qwen3_moe", "granite", "gemma"}:
        return {}
    found = {"attention_bias": "blk.0.attn_q.bias" in gguf.tensors}
    if architecture.family == "llama":
        found["mlp_bias"] = "blk.0.ffn_up.bias" in gguf.tensors
    return found


def rope_of_tensors(
    architecture: Architecture, said: Said, config: dict[str, Any], gguf: GGUF
) -> dict[str, Any]:
    """The rope whose factors by frequency are tensors: Llama 3's, and those of long contexts."""
    found = {name: factors_of(gguf, f"{name}.weight") for name in ROPE_FACTORS}
    if factors := found["rope_freqs"]:
        rope = {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "factor": 1.0}
        return {"rope_scaling": {**rope, "attention_factor": 1.0}}
    long, short = found["rope_factors_long"], found["rope_factors_short"]
    if not long and not short:
        return {}
    if architecture.family != "phi3" or not long or not short:
        raise AttnError(
            "rope_factors_long and rope_factors_short: only those of phi3 are read, both together"
        )
    rope = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    if "rope.scaling.attn_factor" in said:
        rope["attention_factor"] = said["rope.scaling.attn_factor"]
    return {"rope_scaling": rope}


def factors_of(gguf: GGUF, name: str) -> list[float]:
    packed = gguf.tensors.get(name)
    if packed is None:
        return []
    if len(packed.shape) != 1 or packed.shape[0] > 2**12:
        raise AttnError(f"{name}: {packed.shape}, expected a number for each frequency")
    tensor = stored_tensor(gguf, packed)
    return [float(str(number)) for number in tensor.load().astype(np.float32)]


def tensors_of(
    architecture: Architecture, config: dict[str, Any], gguf: GGUF
) -> Iterator[tuple[str, Stored]]:
    """The tensors under the names that the family has for them."""
    for name, packed in gguf.tensors.items():
        if name.removesuffix(".weight") in ROPE_FACTORS:
            continue
        match = BLOCK.fullmatch(name) or WHOLE.fullmatch(name)
        module = match[2] if match and match.re is BLOCK else match and match[1]
        known = {**architecture.names, **architecture.experts}
        if match is None or module not in known:
            raise AttnError(f"the tensor {quote(name)} is none of {architecture.family}")

        layer = f"model.layers.{match[1]}." if match.re is BLOCK else ""
        whole = f"{layer}{known[module]}.{match[match.lastindex or 0]}"
        if "{e}" in whole:
            yield from expert_tensors(gguf, packed, whole, name)
            continue
        order = None
        if module in architecture.permuted:
            heads = config["num_attention_heads"]
            if module == "attn_k":
                heads = config.get("num_key_value_heads") or heads
            order = rows_back(packed, heads, name)
        is_raised = architecture.raised and module.endswith(architecture.raised)
        yield whole, stored_tensor(gguf, packed, order, 1.0 if is_raised else 0.0)


def rows_back(packed: Packed, heads: int, name: str) -> Array:
    """Which row of the file each row is: llama.cpp has the two of a pair that turns side by side."""
    rows = packed.shape[0]
    if not isinstance(heads, int) or heads < 1 or rows % (2 * heads):
        raise AttnError(f"{name}: {rows} rows are no pairs of {heads} heads")
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def expert_tensors(gguf: GGUF, packed: Packed, name: str, place: str) -> Iterator[tuple[str, Stored]]:
    """The matrix of each expert, of the tensor that holds them all."""
    if len(packed.shape) != 3:
        raise AttnError(f"{place}: {len(packed.shape)} axes; experts are matrices, one behind the other")
    count, *shape = packed.shape
    size = prod(shape) // packed.kind.numbers * packed.kind.bytes
    for expert in range(count):
        each = Packed(packed.kind, tuple(shape), packed.offset + expert * size)
        yield name.format(e=expert), stored_tensor(gguf, each)
