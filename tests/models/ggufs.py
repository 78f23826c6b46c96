"""GGUF files of the tiny checkpoints, as llama.cpp's converter makes them, by the gguf package's writer."""

import json
from pathlib import Path

import numpy as np
from checkpoints import ROOT

from attnctl.models.tensors import Checkpoint

OUTER = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
}
ROUND = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
PERMUTED = ("llama", "mixtral", "granite")
RAISED = ("gemma", "gemma2", "gemma3")
EXPERTS = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}
EXPERTS |= {f"{name}_proj": f"ffn_{name}_exps" for name in ("gate", "up", "down")}


def permute(weights, heads):
    """As llama.cpp's converter writes it: the halves of each head, a number of each in turn."""
    shape = weights.shape
    halves = weights.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
    return halves.swapaxes(1, 2).reshape(shape)


def of_gpt_oss(arrays):
    """Its experts as a GGUF file has them: a tensor for each matrix, rows first, and one of sinks."""
    found = {}
    for name, array in arrays.items():
        layer = "blk." + name.split(".")[2] if ".layers." in name else ""
        if name.endswith("gate_up_proj"):
            found[f"{layer}.ffn_gate_exps.weight"] = array[..., ::2].swapaxes(1, 2)
            found[f"{layer}.ffn_up_exps.weight"] = array[..., 1::2].swapaxes(1, 2)
        elif name.endswith("gate_up_proj_bias"):
            found[f"{layer}.ffn_gate_exps.bias"], found[f"{layer}.ffn_up_exps.bias"] = (
                array[:, ::2],
                array[:, 1::2],
            )
        elif name.endswith("down_proj"):
            found[f"{layer}.ffn_down_exps.weight"] = array.swapaxes(1, 2)
        elif name.endswith("down_proj_bias"):
            found[f"{layer}.ffn_down_exps.bias"] = array
        elif name.endswith("sinks"):
            found[f"{layer}.attn_sinks.weight"] = array
        elif name.endswith("post_attention_layernorm.weight"):
            found[f"{layer}.post_attention_norm.weight"] = array
    return found


OF_ITS_OWN = ("experts", "sinks", "post_attention_layernorm")


def changed(array, arch, whole, config):
    """What the converter makes of the numbers."""
    if arch in RAISED and whole.endswith("norm"):
        return array + 1
    if arch in PERMUTED and whole.endswith(("attn_q", "attn_k")):
        kind = "num_attention_heads" if whole.endswith("q") else "num_key_value_heads"
        return permute(array, config[kind])
    return array


def tensors_of(arch, config, arrays):
    """The tensors of a checkpoint as a GGUF file has them."""
    found, experts = {}, {}
    for name, array in arrays.items():
        module, _, ending = name.removeprefix("model.").rpartition(".")
        if not module.startswith("layers."):
            whole = OUTER[module]
        else:
            _, layer, inner = module.split(".", 2)
            if "experts." in inner:
                _, _, number, matrix = inner.split(".")
                experts.setdefault(f"blk.{layer}.{EXPERTS[matrix]}.weight", {})[int(number)] = array
                continue
            names = {**INNER, **ROUND} if arch in ("gemma2", "gemma3") else INNER
            whole = f"blk.{layer}.{names[inner]}"
        found[f"{whole}.{ending}"] = changed(array, arch, whole, config)
    for name, each in experts.items():
        found[name] = np.stack([each[number] for number in sorted(each)])
    return found


def write_gguf(path, arch, said, tensors, types=None, tokens=None):
    """A file by the gguf package; `types` are those of quantised tensors, given as bytes."""
    import gguf

    writer = gguf.GGUFWriter(str(path), arch)
    for key, value in said.items():
        if isinstance(value, bool):
            writer.add_bool(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)
    for add in tokens or ():
        add(writer)
    for name, array in tensors.items():
        kind = (types or {}).get(name)
        raw = None if kind is None else gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, np.ascontiguousarray(array), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sizes_of(config):
    said = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
    }
    if "rms_norm_eps" in config:
        said["attention.layer_norm_rms_epsilon"] = float(config["rms_norm_eps"])
    if config.get("head_dim"):
        said |= {"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]}
        said["rope.dimension_count"] = config["head_dim"]
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:
        said["rope.freq_base"] = float(rope["rope_theta"])
    if rope.get("rope_type") == "linear":
        said |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return said


def checkpoint(name):
    config = json.loads((ROOT / name / "config.json").read_text())
    arrays = {each: np.array(tensor.load()) for each, tensor in Checkpoint(ROOT / name).tensors.items()}
    return config, arrays


def gguf_of(name: str, arch: str, path: Path, **more):
    """A tiny checkpoint as a GGUF file."""
    config, arrays = checkpoint(name)
    written = "llama" if arch == "mixtral" else arch
    return write_gguf(path, written, {**sizes_of(config), **more}, tensors_of(arch, config, arrays))
