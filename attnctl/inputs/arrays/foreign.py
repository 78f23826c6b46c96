r"""The names that other programs give to the arrays of attention, brought to ours.

Programs call an array as it is by one of `WORDS`. What torch's nn.MultiheadAttention and the families of
Hugging Face keep otherwise has a row of `CONVENTIONS`, which says which of our arrays it is and how it is
laid out: `Convention(r"qkv_proj\.weight", ("W_Q", "W_K", "W_V"), PACKED_LINEAR)` is all of one. What no row
knows keeps its name. check, attend, `--model` and conform read the same table;
`tests/check/foreign/make.py` writes arrays of real modules that hold it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.names import (
    BIAS,
    BIAS_INDEX,
    BIAS_TABLE,
    EMBEDDINGS,
    HEAD_OUTPUTS,
    HIDDEN,
    KEY_LENGTHS,
    LAST_PAGE,
    LOGITS,
    LOGSUMEXP,
    MASK,
    MEMORY,
    OUTPUT,
    PAGE_ENDS,
    PAGE_LIST,
    PAGE_NUMBERS,
    PAGE_TABLE,
    PAGES,
    PAST_KEY,
    PAST_VALUE,
    PROJECTED,
    SCALED,
    SINK,
    STORED_SCALES,
    TABLE,
    W_O,
    WEIGHTS,
    X,
    gradient_of,
    matrix_of,
)

MATRICES, BIASES = ("W_Q", "W_K", "W_V"), ("b_Q", "b_K", "b_V")
AS_IS = "as it is"
LINEAR = "(out, in)"
PACKED = "Q, K and V side by side"
PACKED_LINEAR = "Q, K and V below one another, (out, in)"
CONV = "(in, out), or (out, in) where the packed matrix of the file is higher than wide"
PACKED_CONV = f"Q, K and V side by side, {CONV}"
PACKED_PAGES = "pages of K and of V, along the second axis, or else the first"
BY_HEAD = "for each head its Q, K and V"
BY_HEAD_LINEAR = "for each head its Q, K and V below one another, (out, in)"
HIDES = "true where a key is hidden"
VALUES = "what V is made of: the same as for K, or not known"
IF_SCORES = "as it is, where its sizes are those of queries and keys"


class Convention(NamedTuple):
    """A name that others use: a regular expression of its end, if one that ends like `beside` is there."""

    theirs: str
    ours: tuple[str, ...]
    layout: str = AS_IS
    beside: str = ""


OF_TORCH = r"in_proj_weight|q_proj_weight"
"""The matrices of nn.MultiheadAttention, whose query, key and value are what is projected."""

WORDS = {
    "Q": "q qs qh query queries q_heads xq q_states query_states query_layer query_vectors",
    "K": "k ks kh key keys k_heads xk k_states key_states key_layer key_vectors",
    "V": "v vs vh value values v_heads xv v_states value_states value_layer value_vectors",
    "Q_normed": "q_normed query_normed",
    "K_normed": "k_normed key_normed",
    "Q_rotated": "q_embed q_rot q_rotated q_rope query_rot query_rotated rotated_q",
    "K_rotated": "k_embed k_rot k_rotated k_rope key_rot key_rotated rotated_k",
    X: "attn_input attention_input hidden_normed normed_hidden",
    MEMORY: "encoder_hidden_states key_value_states",
    "scores": "score attn_scores attention_scores raw_scores qk qk_similarities sim dots pre_softmax_attn",
    SCALED: "scaled scores_scaled scaled_attn_scores scaled_attention_scores",
    WEIGHTS: "attn_probs attention_probs attn_weights att_weights attn_output_weights softmax_scores probs "
    "attn att pattern",
    LOGSUMEXP: "lse softmax_lse log_sum_exp logsum_exp log_sumexp",
    HEAD_OUTPUTS: "context_layer context ctx head_out heads_out head_outs attn_heads attended z",
    "concat": "attn_concat context_merged",
    OUTPUT: "attn_output attention_output attn_out out o y outputs result",
    MASK: "attn_mask attention_mask",
    BIAS: "attn_bias position_bias",
    BIAS_TABLE: "relative_position_bias_table relative_attention_bias rel_pos_bias_table rel_attn_bias",
    BIAS_INDEX: "relative_position_index rel_pos_index relative_position_bucket rp_bucket",
    PAST_KEY: "past_k",
    PAST_VALUE: "past_v",
    PAGES[0]: "k_pages k_cache key_cache paged_k_cache",
    PAGES[1]: "v_pages v_cache value_cache paged_v_cache",
    PAGE_TABLE: "block_table block_tables page_tables page_indices",
    PAGE_ENDS: "paged_kv_indptr kv_page_indptr kv_indptr",
    PAGE_NUMBERS: "paged_kv_indices kv_page_indices kv_indices",
    LAST_PAGE: "paged_kv_last_page_len kv_last_page_len",
    KEY_LENGTHS: "cache_seqlens seqused_k seq_lens context_lens kv_lens",
    STORED_SCALES[0]: "k_descale key_scale",
    STORED_SCALES[1]: "v_descale value_scale",
    SINK: "sinks attn_sink attn_sinks attention_sink attention_sinks sink_logit sink_logits s_aux",
}
"""What programs call the arrays of attention, in small letters."""

TABLES = "|".join(word for ours in (PAGE_TABLE, PAGE_NUMBERS) for word in (ours, *WORDS[ours].split()))
"""What tells that a cache is one of pages: it has a table."""

BESIDE_MODEL = {
    HIDDEN: "hidden_states hidden_in layer_input residual_in resid_pre input inputs input_tensor",
    X: "normed input_layernorm ln_1 ln1",
    WEIGHTS: "weights attention",
    "concat": "merged",
    "residual": "resid_mid residual_out hidden_after_attention",
}
"""What the arrays of a layer are called besides, where its model says what comes into it."""

PASSED = {LOGSUMEXP: "l", PAST_KEY: "k_cache", PAST_VALUE: "v_cache", gradient_of(OUTPUT): "grad cotangent"}
"""What functions call the arrays that they are passed besides: in a file these say too little."""

MODULES = {
    "Q": r"q|query|queries|q_proj|q_lin|to_q|wq|w_q",
    "K": r"k|key|keys|k_proj|k_lin|to_k|wk|w_k",
    "V": r"v|value|values|v_proj|v_lin|to_v|wv|w_v",
    "Q_norm": r"q_norm|q_layernorm|query_norm|query_layernorm|norm_q",
    "K_norm": r"k_norm|k_layernorm|key_norm|key_layernorm|norm_k",
    OUTPUT: r"out_proj|o_proj|out_lin|to_out\.0|to_out|(?<!DenseReluDense\.)wo|w_o|o|attn\.proj"
    r"|attention\.output\.dense|attention\.dense",
}
"""What the modules that make an array are called; a bare name is their output, or a norm's weight."""


def named(ours: str, also: str = "") -> Convention:
    """The row of an array as it is: its words, and whatever `also` names it."""
    return Convention("|".join([*WORDS[ours].split(), *([also] if also else [])]), (ours,))


OF_BIASES = {PACKED_LINEAR: PACKED, PACKED_CONV: PACKED, BY_HEAD_LINEAR: BY_HEAD}
"""How biases, and what comes out, are laid out where matrices are so; elsewhere as they are."""


def parameters(modules: str, ours: tuple[str, ...], layout: str, beside: str = "") -> Iterator[Convention]:
    """The weight and the bias of modules that are called so; of packed ones also what comes out."""
    biases = tuple(name.replace("W_", "b_").replace("weight", "bias") for name in ours)
    yield Convention(rf"(?:{modules})\.weight", ours, layout, beside)
    yield Convention(rf"(?:{modules})\.bias", biases, OF_BIASES.get(layout, AS_IS), beside)
    if ours == MATRICES:
        yield Convention(modules, PROJECTED, OF_BIASES[layout])


def of_modules() -> Iterator[Convention]:
    for symbol in "QKV":
        yield from parameters(MODULES[symbol], (f"W_{symbol}",), LINEAR)
        yield Convention(rf"{symbol}_proj_weight", (f"W_{symbol}",), LINEAR)
        yield named(symbol, MODULES[symbol])
    for symbol in "QK":
        norms, norm = MODULES[f"{symbol}_norm"], f"{symbol}_norm"
        yield named(f"{symbol}_rotated")
        yield from parameters(norms, (f"{norm}_weight",), AS_IS)
        yield named(f"{symbol}_normed", norms)


CONVENTIONS = (
    # torch.nn.MultiheadAttention
    Convention("in_proj_weight", MATRICES, PACKED_LINEAR),
    Convention("in_proj_bias", BIASES, PACKED),
    Convention("query", (X,), beside=OF_TORCH),
    Convention("key", (MEMORY,), beside=OF_TORCH),
    Convention("value", (), VALUES, beside=OF_TORCH),
    Convention("attn_mask", (MASK,), HIDES, beside=OF_TORCH),
    Convention("key_padding_mask", (MASK,), HIDES),
    # in one matrix for Q, K and V: GPT-2 and nanoGPT, then GPT-NeoX and BLOOM, then Phi-3, ViT and MPT
    *parameters("c_attn", MATRICES, PACKED_CONV),
    *parameters(r"(?<!mlp\.)c_proj", (W_O,), CONV),
    *parameters("query_key_value", MATRICES, BY_HEAD_LINEAR),
    *parameters(r"qkv|qkv_proj|Wqkv|in_proj|to_qkv", MATRICES, PACKED_LINEAR),
    # one by one: Llama, Qwen, Mistral, Gemma, OPT, BERT, ViT, DistilBERT, T5, diffusers
    *of_modules(),
    *parameters(rf"{MODULES[OUTPUT]}|output\.dense", (W_O,), LINEAR),
    *parameters("dense", (W_O,), LINEAR, beside=r"query_key_value\.weight"),
    # variables
    *(
        Convention(rf"w_?{word}|{word}_(?:w|weights?|matrix)|weights?_{word}", (ours,))
        for ours, word in {"W_Q": "query", "W_K": "key", "W_V": "value", W_O: "out(?:put)?"}.items()
    ),
    named(X),
    Convention(r"x|h|(?-i:E)|(?:tokens?_)?emb(?:edding)?s?|hidden_states|inputs?|input_tensor", (X,)),
    named(MEMORY),
    named("scores", r"att(?:n|ention)?_(?:score|logit)s?"),
    named(SCALED),
    Convention(r"scaled_logits", (SCALED,), IF_SCORES),
    Convention(r"logits|s|energy", ("scores",), IF_SCORES),
    named(WEIGHTS),
    Convention(r"a|p|w|weights|attention|alphas?", (WEIGHTS,), IF_SCORES),
    Convention(
        r"(?:chunk|split|partial)s?_(?:lse|log_?sum_?exp)|lse_(?:accum|partial)|softmax_lse_accum",
        ("chunk_logsumexp",),
    ),
    Convention(
        r"(?:chunk|split|partial)s?_(?:out|output|o)s?|(?:out|o)_(?:accum|partial)", ("chunk_outputs",)
    ),
    named(LOGSUMEXP),
    *(Convention(rf"(?:{word})(?:\.weight)?", (BIAS_TABLE,), LINEAR) for word in WORDS[BIAS_TABLE].split()),
    named(BIAS_INDEX),
    named(HEAD_OUTPUTS),
    named("concat"),
    named(OUTPUT, rf"{MODULES[OUTPUT]}|(?<!mlp\.)c_proj"),
    Convention(r"output\.dense", (OUTPUT,)),
    *map(named, (MASK, BIAS, PAST_KEY, PAST_VALUE, *STORED_SCALES, SINK, PAGE_TABLE, *PAGE_LIST)),
    Convention(r"(?:paged_)?kv_cache", PAGES, PACKED_PAGES, beside=TABLES),
    *(named(ours)._replace(beside=TABLES) for ours in (*PAGES, KEY_LENGTHS)),
)

NORMED = ("Q_normed", "K_normed")

GRADIENT = re.compile(
    r"(?:(.*\.)?grad_(\w+)|(.+)[._]grad|d_?(q|k|v|o|x|y|out|output|qkv|bias|sinks?))", re.IGNORECASE
)
"""What gradients are called: grad_q, q.grad, q_grad, dq, dQ, do, dout."""

OURS = frozenset(TABLE) - {LOGITS, "scaled_logits"}
"""Names that stand for themselves; scores are called logits, too, and their sizes tell."""

LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?=\.|$)")


def read_foreign(found: Mapping[str, Array], layer: int | None = None, *counts: int | None) -> Understood:
    """The arrays of someone's file under our names.

    `layer` is the one to read of a file with several; `counts` are those of heads and kv heads of packed
    projections, where the arrays do not show them. Our own names stand for themselves. Raises AttnError
    where a file has several layers and nobody says which, or not the one that is asked for.
    """
    back = {name: forward for name in found if name not in OURS and (forward := variable_of(name))}
    if back:
        return read_gradients(found, back, layer, *counts)
    theirs = of_layer([name for name in found if name not in OURS], layer)
    rows = {name: row for name in theirs if (row := row_of(name, found))}
    heads, kv_heads = counts or (None, None)
    of_x = [name for name in found if name in OF_X or (name in rows and rows[name].ours == (X,))]
    out = Understood(found, heads or heads_shown(found, rows), kv_heads, found[of_x[0]] if of_x else None)
    out.arrays |= {name: found[name] for name in found if name in OURS}

    def order(name: str) -> tuple[bool, int, bool, str]:
        """Matrices first, as they tell what follows; what only may be one comes after its kind."""
        return not out.is_matrix(name), CONVENTIONS.index(rows[name]), bool(MATRIX.fullmatch(name)), name

    for name in sorted(rows, key=order):
        out.take(name, rows[name])
    out.arrays |= {name: found[name] for name in theirs if name not in rows}
    if MEMORY in out.arrays and X in out.arrays and np.array_equal(out.arrays[MEMORY], out.arrays[X]):
        del out.arrays[MEMORY]
    return out


def variable_of(name: str) -> str:
    """The array that this is the gradient by: q of q.grad, grad_q and dq; "" where it is no gradient."""
    found = GRADIENT.fullmatch(name)
    if found is None:
        return ""
    path, *names = (group or "" for group in found.groups())
    forward = "".join(names)
    return path + (forward if forward in TABLE or len(forward) > 1 else forward.lower())


def read_gradients(
    found: Mapping[str, Array], back: Mapping[str, str], layer: int | None, *counts: int | None
) -> Understood:
    """The arrays under our names, those of the backward pass by what they are gradients by."""
    out = read_foreign({name: found[name] for name in found if name not in back}, layer, *counts)
    theirs = {forward: name for name, forward in back.items()}
    gone = read_foreign({forward: found[name] for forward, name in theirs.items()}, layer, *counts)
    for name, array in gone.arrays.items():
        known = gradient_of(name) in TABLE
        out.arrays[gradient_of(name) if known else theirs.get(name, name)] = array
    read = {**{name: name for name in gone.arrays if name in theirs}, **gone.read}
    for ours, last in read.items():
        from_theirs = [theirs[name] for name in theirs if name.endswith(last)]
        names = [gradient_of(word) for word in ours.split() if gradient_of(word) in TABLE]
        out.read |= {" ".join(names): from_theirs[0]} if names and from_theirs else {}
    out.notes += gone.notes
    return out


OF_X = {X, EMBEDDINGS, HIDDEN}

MATRIX = re.compile(r"(?:.*\.)?w_?[qkvo]", re.IGNORECASE)
"""Names of a matrix, or of a module and so of what comes out: beside an X the shape tells."""


def beside_model(names: Iterable[str], *, cross: bool) -> dict[str, str]:
    """The arrays of a known model's layer, theirs to ours; only `cross` attention reads a memory."""
    words = {word: ours for ours, text in BESIDE_MODEL.items() for word in text.split()}

    def ours_of(name: str) -> str:
        row = None if MATRIX.fullmatch(name) else row_of(name, ())
        single = row and len(row.ours) == 1 and row.layout in {AS_IS, IF_SCORES}
        return words.get(name.lower()) or (row.ours[0] if row and single else "")

    found: dict[str, str] = {}
    for name in names:
        forward = variable_of(name)
        ours = ours_of(name) or gradient_of(forward if forward in TABLE else ours_of(forward))
        if name not in TABLE and ours in TABLE and (cross or ours != MEMORY):
            found.setdefault(ours, name)
    return {theirs: ours for ours, theirs in found.items() if ours not in names}


def passed_names(ours: str) -> tuple[str, ...]:
    words = [ours.lower(), *f"{WORDS.get(ours, '')} {PASSED.get(ours, '')}".split()]
    if ours == gradient_of(OUTPUT):
        words += [f"{d}{word}" for d in ("d_", "d", "grad_") for word in passed_names(OUTPUT)]
    return tuple(dict.fromkeys(words))


def of_layer(names: Iterable[str], layer: int | None) -> list[str]:
    numbers = {name: int(place[1]) if (place := LAYER.search(name)) else None for name in names}
    there = sorted({number for name, number in numbers.items() if number is not None and row_of(name, ())})
    if layer is not None and layer not in there:
        raise AttnError(f"--layer {layer}: the arrays are of {list_layers(there)}")
    if layer is None and len(there) > 1:
        raise AttnError(f"the arrays are of {list_layers(there)}; --layer N says which to read")
    wanted = {None, layer if layer is not None else there[0] if there else None}
    return [name for name, number in numbers.items() if number in wanted or not there]


def list_layers(layers: list[int]) -> str:
    """layers 0 to 11, or no layer."""
    if not layers:
        return "no layer by number"
    return f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"


@cache
def pattern(theirs: str) -> re.Pattern[str]:
    """A name that ends so, after the path of its module."""
    return re.compile(rf"(?:^|.*\.)({theirs})", re.IGNORECASE)


def row_of(name: str, names: Iterable[str]) -> Convention | None:
    for row in CONVENTIONS:
        if pattern(row.theirs).fullmatch(name) and (
            not row.beside or any(pattern(row.beside).fullmatch(name) for name in names)
        ):
            return row
    return None


def heads_shown(found: Mapping[str, Array], rows: Mapping[str, Convention]) -> int | None:
    """The number of heads that the scores or weights of a file have, where they have an axis for them."""
    for name in found:
        ours = rows[name].ours if name in rows else (name,)
        if len(ours) == 1 and ours[0] in TABLE and TABLE[ours[0]].of_scores and not TABLE[ours[0]].leaf:
            shape = found[name].shape
            if len(shape) == 4:  # batch, head, query, key
                return int(shape[1])
    return None


@dataclass
class Understood:
    """The arrays of one file, ours under our names; `heads` and `kv_heads` share what is packed."""

    found: Mapping[str, Array]
    heads: int | None = None
    kv_heads: int | None = None
    x: Array | None = None
    arrays: dict[str, Array] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)  # ours -> theirs, without the path of its module
    notes: list[str] = field(default_factory=list)  # what was left out, and why

    def take(self, name: str, row: Convention) -> None:
        if row.layout == IF_SCORES and not self.may_be_scores(name):
            self.arrays[name] = self.found[name]
            return
        if self.is_matrix(name):
            row = row._replace(ours=(matrix_of(name[-1].upper()),))
        taken = [ours for ours in row.ours if ours in self.arrays and row.layout != HIDES]
        if taken:
            self.notes.append(f"{name} is left out: {taken[0]} is there already")
            return
        if row.layout == VALUES:  # where K is made of something else, nothing here has what V is made of
            keys = self.arrays.get(MEMORY, self.arrays.get(X))
            if keys is not None and not np.array_equal(keys, self.found[name]):
                self.notes.append(f"{name} is left out: V is made of it alone; record V instead")
                for lost in ("W_V", "b_V"):
                    self.arrays.pop(lost, None)
            return
        arrays, count = self.lay_out(self.found[name], row), len(row.ours)
        if arrays is None:
            self.notes.append(f"{name} is left out: --heads N says how many heads share its {count}")
            return
        names = self.settle(name, row.ours, arrays[0])
        for ours, array in zip(names, arrays, strict=True):
            self.arrays[ours] = both(self.arrays[ours], array) if ours in self.arrays else array
        found = pattern(row.theirs).fullmatch(name)
        assert found is not None
        self.read[" ".join(names)] = found[1]

    def settle(self, name: str, ours: tuple[str, ...], array: Array) -> tuple[str, ...]:
        """Ours for a name that several arrays go by: its shape tells."""
        if ours == (OUTPUT,) and self.is_by_head(array):
            return (HEAD_OUTPUTS,)
        return (f"{ours[0][0]}_norm_weight",) if ours[0] in NORMED and array.ndim == 1 else ours

    def is_by_head(self, output: Array) -> bool:
        """True if what attention gives still has its heads, as a fused kernel gives it, laid out as V."""
        if HEAD_OUTPUTS in self.arrays:
            return False
        v = self.arrays.get("V")
        return output.ndim == 4 or (W_O not in self.arrays and v is not None and v.ndim == output.ndim)

    def is_matrix(self, name: str) -> bool:
        """True if X can be multiplied by it, and it is not as long as what comes out of a module."""
        x, array = self.x, self.found[name]
        if not MATRIX.fullmatch(name) or x is None or x.ndim < 2 or not 2 <= array.ndim <= 3:
            return False
        of_x = array.shape[-1 if name[-1] in "oO" else -2]
        return of_x == x.shape[-1] and (array.shape[-2] != x.shape[-2] or "." not in name)

    def may_be_scores(self, name: str) -> bool:
        """True if other arrays have as many queries and keys; logits of words have no such keys."""
        rows = {size for other in self.found if other != name for size in self.found[other].shape[:-1]}
        return self.found[name].ndim > 1 and rows.issuperset(self.found[name].shape[-2:])

    def lay_out(self, array: Array, row: Convention) -> list[Array] | None:
        """Our arrays of one of theirs; None where nothing tells how many heads there are."""
        if row.layout == HIDES:
            return [~array if array.dtype == bool else array]
        linear = row.layout in {LINEAR, PACKED_LINEAR, BY_HEAD_LINEAR}
        if row.layout in {CONV, PACKED_CONV}:  # nanoGPT has GPT-2's names and nn.Linear's layout
            packed = (self.found[other].shape for other in self.found if other.endswith("c_attn.weight"))
            linear = any(len(shape) == 2 and shape[0] > shape[1] for shape in packed)
        array = array.T if linear else array
        if row.layout == PACKED_PAGES:
            return list(np.moveaxis(array, int(array.shape[1:2] == (2,)), 0)[:2])
        if row.layout in {PACKED, PACKED_LINEAR, PACKED_CONV}:
            return self.side_by_side(array)
        if row.layout in {BY_HEAD, BY_HEAD_LINEAR}:
            if self.heads is None or array.shape[-1] % (3 * self.heads):
                return None
            return list(rearrange(array, "... (head qkv d) -> qkv ... (head d)", head=self.heads, qkv=3))
        return [array]

    def side_by_side(self, array: Array) -> list[Array] | None:
        """(…, all of Q, K and V) in three: equal, or with fewer heads of K and V where that is said."""
        total = array.shape[-1]
        if self.kv_heads is None:
            return None if total % 3 else np.split(array, 3, axis=-1)
        if self.heads is None or total % (self.heads + 2 * self.kv_heads):
            return None
        size = total // (self.heads + 2 * self.kv_heads)
        return np.split(array, [self.heads * size, (self.heads + self.kv_heads) * size], axis=-1)


def both(mask: Array, padding: Array) -> Array:
    """A mask without the keys that are padding, (batch, key) or (key,) and true where they are not."""
    real = padding[:, None, None] if padding.ndim > 1 else padding
    return mask & real if mask.dtype == bool else np.where(real, mask, -np.inf)
