"""The functions that are attention, a row for each: what a call of it is passed and gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from attnctl.inputs.arrays.conventions import WORDS
from attnctl.inputs.arrays.reader import as_array
from attnctl.math import Array
from attnctl.math.names import (
    B_O,
    BIAS,
    HEAD_OUTPUTS,
    KEY_LENGTHS,
    LOGSUMEXP,
    MASK,
    OUTPUT,
    PAGE_LIST,
    PAGE_TABLE,
    PAGES,
    POSITION_IDS,
    TABLE,
    W_O,
    WEIGHTS,
)
from attnctl.record import DROPPED

Given = Mapping[str, Any]  # what a call was passed, by parameter, and what it gave back, by our names

DOCUMENTS = "documents"
HEADS = ("Q", "K", "V", HEAD_OUTPUTS, LOGSUMEXP)


def by_word(words: Mapping[str, str]) -> dict[str, str]:
    return {word: ours for ours, text in words.items() for word in [ours.lower(), *text.split()]}


OF_CACHES = dict.fromkeys((*PAGES, PAGE_TABLE, *PAGE_LIST), "")
OF_PEOPLE = by_word(
    {ours: text for ours, text in WORDS.items() if ours not in {KEY_LENGTHS, *OF_CACHES}}
    | {"scale": "softmax_scale", "causal": "is_causal", POSITION_IDS: "positions input_positions"}
)
"""Parameters of anyone's function, theirs to ours; of settings those that mean the same to everyone."""

OF_LIBRARIES = OF_PEOPLE | by_word(
    {"scale": "scaling", "dropout": "dropout_p p", "window": "window_size local_window_size", "softcap": ""}
    | {KEY_LENGTHS: "key_value_seq_lengths", W_O: "", B_O: "", DOCUMENTS: "", **OF_CACHES}
)


MEANT = {"scale": float, "causal": bool}  # the types of settings that a function of one's own is passed


class Function(NamedTuple):
    more: Callable[[Given], Given] = lambda _: {}
    """What a call of it says in a way of its own, in place of what it was passed or gave back."""
    returns: tuple[str, ...] = (HEAD_OUTPUTS, LOGSUMEXP)
    tokens_first: tuple[str, ...] = ()  # arrays that have tokens before heads
    unread: str = ""  # parameters of calls that cannot be recorded
    at_end: bool = False
    """True where the last query is beside the last key, however many keys are before the first."""
    inner_without: str = ""  # a parameter; a call without it is left to the function inside
    parameters: str = ""  # the names of all, of a builtin: it does not say them
    names: Mapping[str, str] = OF_LIBRARIES


class UnreadError(Exception):
    """Why a call cannot be recorded."""


Passed = tuple[dict[str, Any], tuple[str, ...], dict[str, Any]]
"""The arrays of a call as they were, which of them have tokens first, and a config for the rest."""


def laid_out(name: str, array: Any, tokens_first: Sequence[str]) -> Array:
    """One of the arrays of a call, or its gradient, in our layout."""
    array, axes = as_array(name, array), TABLE[name].axes if name in tokens_first else ()
    return array.swapaxes(head := axes.index("head") - len(axes), head + 1) if axes else array


def read_call(function: Function, given: Given, out: Any) -> Passed:
    """What a call says; with dropout what comes back is no function of the rest. Raises UnreadError."""
    for name in function.unread.split():
        if given.get(name) is not None and given[name] is not False:
            raise UnreadError(f"it is passed {name}, which is not read")
    outs = out if isinstance(out, tuple) else (out,)
    told = {**given, **dict(zip(function.returns, outs, strict=False))}
    told |= function.more(told)
    names, own = function.names, function.names is OF_PEOPLE
    found = {names[name.lower()]: value for name, value in told.items() if name.lower() in names}
    found = {name: value for name, value in found.items() if value is not None}
    if missing := [name for name in ("Q" if PAGE_TABLE in found else "QKV") if name not in found]:
        raise UnreadError(f"no parameter is known as {', '.join(missing)}")
    if own:  # whose other values may mean anything
        found = {name: value for name, value in found.items() if is_meant(name, value)}
    elif MASK in found and not is_bool(found[MASK]):  # it is added to the scores
        mask = found.pop(MASK)
        found[BIAS] = mask + found[BIAS] if BIAS in found else mask
    if found.pop("dropout", None):
        found[DROPPED] = found.pop(function.returns[0])
        found.pop(WEIGHTS, None)
    turned = function.tokens_first if found["Q"].ndim > 2 else ()
    config: dict[str, Any] = {} if own else {"causal_offset": 0}
    if function.at_end and DOCUMENTS not in found:
        keys = np.asarray(found[KEY_LENGTHS] if KEY_LENGTHS in found else found["K"].shape[-3])
        config["causal_offset"] = (keys - found["Q"].shape[-3]).tolist()
    if PAGE_TABLE in found:
        config[PAGE_TABLE] = found.pop(PAGE_TABLE).tolist()
    config |= take_settings(found)
    return found, turned, config


def take_settings(found: dict[str, Any]) -> dict[str, Any]:
    """Take what is no array out of what a call says, as a config has it."""
    config = {name: float(found.pop(name)) for name in ("scale", "softcap") if name in found}
    if not config.get("softcap"):
        config.pop("softcap", None)
    window = found.pop("window", (-1, -1))
    sides = [window, window] if isinstance(window, int) else window
    sides = [side if side >= 0 else None for side in sides]
    rules = ["causal"] * bool(found.pop("causal", False)) + [{"window": sides}] * (sides != [None, None])
    rules += [{DOCUMENTS: found.pop(DOCUMENTS)}] if DOCUMENTS in found else []
    return config | ({"rules": rules} if rules else {})


def is_meant(name: str, value: Any) -> bool:
    return isinstance(value, MEANT[name]) if name in MEANT else not isinstance(value, (bool, str))


def is_bool(mask: Any) -> bool:
    return "bool" in str(mask.dtype)


def of_multi_head(found: Given) -> Given:
    """torch's, with projections: Q, K and V, which it computes itself, are computed again."""
    heads, weight, bias = found["num_heads"], found.get("in_proj_weight"), found.get("in_proj_bias")
    weights = [found[f"{name}_proj_weight"] for name in "qkv"] if weight is None else weight.chunk(3)
    biases = [0, 0, 0] if bias is None else bias.chunk(3)
    projected = {
        name: (found[name] @ weight.T + bias).unflatten(-1, (heads, -1)).movedim(0, -2)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True)
    }
    mask, padding = found.get("attn_mask"), found.get("key_padding_mask")
    if mask is not None and mask.ndim == 3:
        mask = mask.unflatten(0, (-1, heads))
    if padding is not None and padding.ndim == 2:
        padding = padding[:, None, None]
    parts = [part for part in (mask, padding) if part is not None]
    allowed = [~part for part in parts if is_bool(part)]  # true hides
    added = [part for part in parts if not is_bool(part)]
    return {
        **projected,
        "attn_mask": None,
        "is_causal": None,
        MASK: allowed[0] & allowed[-1] if allowed else None,
        BIAS: sum(added[1:], added[0]) if added else None,
        "dropout_p": found.get("training", True) and found.get("dropout_p"),
        WEIGHTS: None if found.get("average_attn_weights", True) else found[WEIGHTS],
        W_O: found["out_proj_weight"].T,
        B_O: found.get("out_proj_bias"),
        OUTPUT: found[OUTPUT].swapaxes(0, -2),
    }


def of_flexible(found: Given) -> Given:
    """flex_attention: its mask in full, and what a score_mod adds, where that is all it does."""
    torch: Any = import_module("torch")
    query, block, change = found["query"], found.get("block_mask"), found.get("score_mod")
    sizes = (*query.shape[:-1], found["key"].shape[-2])
    places = torch.meshgrid(*(torch.arange(size, device=query.device) for size in sizes), indexing="ij")
    said: dict[str, Any] = {LOGSUMEXP: getattr(found.get(LOGSUMEXP), "lse", found.get(LOGSUMEXP))}
    if block is not None:
        said[MASK] = block.mask_mod(*places)
    if change is not None:
        levels = (torch.full(sizes, level, device=query.device) for level in (0.0, 1.0, -8.0))
        said[BIAS], one, other = (change(level, *places) for level in levels)
        if not (torch.allclose(said[BIAS] + 1, one) and torch.allclose(said[BIAS] - 8, other)):
            raise UnreadError("a score_mod that does more than add to a score or hide it")
    return said


def of_packed(found: Given) -> Given:
    """flash-attn of several texts one after the other: each sees its own keys alone."""
    starts, of_keys = (found[f"cu_seqlens_{name}"].tolist()[:-1] for name in "qk")
    return {DOCUMENTS: starts if starts == of_keys else [of_keys, starts]}


def of_cache(found: Given) -> Given:
    """flash-attn with a cache, in which new keys already are: whole, or of its pages those in use."""
    k, v, table, new = found["k_cache"], found["v_cache"], found.get("block_table"), found.get("k")
    said, slots = found.get("cache_seqlens"), k.shape[1]
    lengths = as_array(KEY_LENGTHS, slots if said is None else said)
    if new is not None:
        lengths = lengths + new.shape[1]
    lengths = np.broadcast_to(lengths, len(k if table is None else table))
    if table is None:
        return {"k": k, "v": v, KEY_LENGTHS: lengths}
    table = as_array(PAGE_TABLE, table)
    used = np.arange(table.shape[1]) * slots < lengths[:, None]
    pages, at = np.unique(table[used], return_inverse=True)
    own = np.zeros(table.shape, int)
    own[used] = at.reshape(-1)
    read = {name: cache[pages.tolist()] for name, cache in zip(PAGES, (k, v), strict=True)}
    return {"k": None, "v": None, **read, PAGE_TABLE: own, KEY_LENGTHS: lengths}


def of_memory_efficient(found: Given) -> Given:
    """xformers: heads may be left out, and a mask may be an object that is known by its class."""
    said = {}
    if found["query"].ndim == 3:
        said = {name: found[name][..., None, :] for name in ("query", "key", "value", HEAD_OUTPUTS)}
    bias, kind = found.get("attn_bias"), type(found.get("attn_bias")).__name__
    if bias is None or hasattr(bias, "shape"):
        return said
    if kind != "LowerTriangularMask":
        raise UnreadError(f"an attn_bias of the class {kind}")
    return {**said, "attn_bias": None, "causal": True}


def of_eager(found: Given) -> Given:
    """transformers: a causal mask is left to whoever calls, unless a kernel has one of its own."""
    module, mask = found["module"], found.get("attention_mask")
    return {
        MASK: None if mask is None else mask[..., : found["key"].shape[-2]],
        "attention_mask": None,
        "is_causal": None,
        "dropout": module.training and found.get("dropout"),
        "s_aux": found.get("s_aux", getattr(module, "sinks", None)),
    }


def of_registered(found: Given) -> Given:
    causal = found.get("is_causal")
    causal = getattr(found["module"], "is_causal", True) if causal is None else causal
    alone = found.get("attention_mask") is None and found["query"].shape[-2] > 1
    return {**of_eager(found), "is_causal": bool(alone and causal)}


SDPA = "query key value attn_mask dropout_p is_causal scale enable_gqa"
EAGER = Function(
    of_eager, (HEAD_OUTPUTS, WEIGHTS), (HEAD_OUTPUTS,), parameters="module query key value attention_mask"
)
REGISTERED = EAGER._replace(more=of_registered)
FLASH = Function(tokens_first=HEADS[:4], at_end=True, unread="alibi_slopes block_table")
OWN = Function(returns=(OUTPUT,), names=OF_PEOPLE)

LIBRARIES = {
    "torch.nn.functional": {
        "scaled_dot_product_attention": Function(parameters=SDPA),
        "multi_head_attention_forward": Function(
            of_multi_head,
            (OUTPUT, WEIGHTS),
            inner_without="need_weights",
            unread="bias_k static_k add_zero_attn",
        ),
    },
    "torch.nn.attention.flex_attention": {"flex_attention": Function(of_flexible)},
    "flash_attn.flash_attn_interface": {
        "flash_attn_func": FLASH,
        "flash_attn_varlen_func": FLASH._replace(more=of_packed),
        "flash_attn_with_kvcache": FLASH._replace(
            more=of_cache, unread="alibi_slopes rotary_cos cache_batch_idx cache_leftpad"
        ),
    },
    "xformers.ops.fmha": {"memory_efficient_attention": Function(of_memory_efficient, tokens_first=HEADS)},
    "jax.nn": {"dot_product_attention": Function(tokens_first=HEADS, unread="query_seq_lengths")},
    "torch": {},
    "torch.backends.mha": {},
    "torch.jit._builtins": {},
    "transformers.modeling_utils": {},
}
"""By the module that defines it; in the last four other things are replaced, and each of
transformers' models has an eager one of its own."""
