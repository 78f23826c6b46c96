"""Writes what attention modules of torch and transformers give, under the names they use themselves.

pip install torch==2.13.0 transformers
python tests/check/foreign/make.py [NAME ...]
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoModel, BertConfig, GPT2Config, GPTNeoXConfig, LlamaConfig
from transformers.models.bert.modeling_bert import BertAttention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention, GPTNeoXRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

BATCH, TOKENS, D_MODEL, HEADS = 2, 5, 16, 4


def state(module, prefix=""):
    """The weights of a module by their names; buffers of a mask are left out."""
    return {prefix + name: p for name, p in module.state_dict().items() if p.ndim in (1, 2)}


def causal(size=TOKENS):
    """What eager attention of transformers adds to the scores."""
    return torch.full((size, size), torch.finfo(torch.float32).min).triu(1)[None, None]


def drawn(module):
    """The module with biases that are not 0."""
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=0.3 if "bias" in name else 0.25)
    return module.eval()


def torch_mha():
    """nn.MultiheadAttention, batch first, weights by head, padding hidden."""
    module = drawn(nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True))
    x = torch.randn(BATCH, TOKENS, D_MODEL)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    y, weights = module(x, x, x, key_padding_mask=hidden, average_attn_weights=False)
    return state(module) | {
        "query": x,
        "key": x,
        "value": x,
        "key_padding_mask": hidden,
        "attn_output": y,
        "attn_output_weights": weights,
    }


def torch_mha_as_it_comes():
    """nn.MultiheadAttention with its defaults: tokens first, weights averaged over heads; a causal mask."""
    module = drawn(nn.MultiheadAttention(D_MODEL, HEADS))
    x, memory = torch.randn(TOKENS, BATCH, D_MODEL), torch.randn(7, BATCH, D_MODEL)
    hidden = torch.ones(TOKENS, 7, dtype=torch.bool).triu(1)
    y, weights = module(x, memory, memory, attn_mask=hidden)
    return state(module) | {
        "query": x,
        "key": memory,
        "value": memory,
        "attn_mask": hidden,
        "attn_output": y,
        "attn_output_weights": weights,
    }


def llama():
    """Grouped heads and rotary positions, as layer 1 of a model with two."""
    config = LlamaConfig(
        hidden_size=D_MODEL, num_attention_heads=HEADS, num_key_value_heads=2, attn_implementation="eager"
    )
    x = torch.randn(BATCH, TOKENS, D_MODEL)
    turn = LlamaRotaryEmbedding(config)(x, torch.arange(TOKENS)[None])
    layers = [drawn(LlamaAttention(config, layer)) for layer in (0, 1)]
    y, weights = layers[1](x, position_embeddings=turn, attention_mask=causal())
    out = {"hidden_states": x, "attn_weights": weights, "attn_output": y}
    for number, layer in enumerate(layers):
        out |= state(layer, f"model.layers.{number}.self_attn.")
    return out | {"model.layers.1.input_layernorm.weight": torch.ones(D_MODEL)}


def bert():
    """Biases everywhere; the norm after attention is there too, and unknown."""
    config = BertConfig(
        hidden_size=D_MODEL, num_attention_heads=HEADS, attn_implementation="eager", intermediate_size=32
    )
    module = drawn(BertAttention(config))
    x, kept = torch.randn(BATCH, TOKENS, D_MODEL), {}
    module.self.query.register_forward_hook(lambda *a: kept.update(query_layer=a[-1]))
    module.self.register_forward_hook(
        lambda *a: kept.update(context_layer=a[-1][0], attention_probs=a[-1][1])
    )
    module.output.dense.register_forward_hook(lambda *a: kept.update(attn_output=a[-1]))
    module(x)
    return state(module, "bert.encoder.layer.3.attention.") | {"hidden_states": x, **kept}


def gpt2():
    """Packed projections, (in, out) as Conv1D keeps them."""
    config = GPT2Config(n_embd=D_MODEL, n_head=HEADS, attn_implementation="eager")
    module = drawn(GPT2Attention(config, layer_idx=0))
    x = torch.randn(BATCH, TOKENS, D_MODEL)
    y, weights = module(x, attention_mask=causal())
    return state(module, "transformer.h.0.attn.") | {"hidden_states": x, "attn_probs": weights, "y": y}


def gpt_neox():
    """Packed projections, interleaved by head; a quarter of the columns turn."""
    config = GPTNeoXConfig(
        hidden_size=D_MODEL * 2, num_attention_heads=HEADS, rotary_pct=0.25, attn_implementation="eager"
    )
    module = drawn(GPTNeoXAttention(config, layer_idx=0))
    x = torch.randn(BATCH, TOKENS, D_MODEL * 2)
    turn = GPTNeoXRotaryEmbedding(config)(x, torch.arange(TOKENS)[None])
    y, weights = module(x, attention_mask=causal(), position_embeddings=turn)
    return state(module, "gpt_neox.layers.0.attention.") | {
        "hidden_states": x,
        "attn_weights": weights,
        "attn_output": y,
    }


CHECKPOINTS = Path(__file__).parents[2] / "models" / "checkpoints"


def called(name):
    """The first attention of a tiny checkpoint, what it is called with, and what its scores are made of."""
    model = AutoModel.from_pretrained(CHECKPOINTS / name, attn_implementation="eager").eval()
    first, seen = model.layers[0].self_attn, {}
    room = sys.modules[type(first).__module__]
    eager = room.eager_attention_forward

    def forward(module, query, key, value, *args, **more):
        out, weights = eager(module, query, key, value, *args, **more)
        if module is first:
            seen.update(query=query, key=key, value=value, attn_weights=weights, attn_output=out)
        return out, weights

    def entered(module, args, more):
        seen.update(hidden_states=args[0] if args else more["hidden_states"])

    first.register_forward_pre_hook(entered, with_kwargs=True)
    room.eager_attention_forward = forward
    model(torch.arange(3, 10)[None])
    room.eager_attention_forward = eager
    return first, seen


def from_hidden(name):
    """What goes into an attention, its weights, and what comes out, with norms of Q and K between."""
    module, seen = called(name)
    y = module.o_proj(seen["attn_output"].flatten(2))
    kept = {each: seen[each] for each in ("hidden_states", "attn_weights")}
    return state(module, "self_attn.") | kept | {"attn_output": y}


def gpt_oss():
    """Rotated queries and keys, and the sinks; heads come before tokens, and after them in the output."""
    module, seen = called("gpt-oss")
    kept = {name: seen[name] for name in ("query", "key", "value", "attn_weights", "attn_output")}
    return kept | {"sinks": module.sinks}


MADE = {
    "torch-mha": torch_mha,
    "torch-mha-as-it-comes": torch_mha_as_it_comes,
    "llama": llama,
    "bert": bert,
    "gpt2": gpt2,
    "gpt-neox": gpt_neox,
    "gpt-oss": gpt_oss,
    **{name: partial(from_hidden, name) for name in ("qwen3", "olmo2", "hunyuan", "gemma3", "cohere")},
}


def main(wanted):
    """A file for each that is wanted, or for all; the same at every run."""
    folder = Path(__file__).parent
    for number, (name, make) in enumerate(MADE.items()):
        if wanted and name not in wanted:
            continue
        torch.manual_seed(number)
        with torch.no_grad():
            arrays = {key: value.detach().numpy() for key, value in make().items()}
        np.savez(folder / f"{name}.npz", **arrays)
        print(name, {key: value.shape for key, value in arrays.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
