r"""The names that other programs give to the arrays of attention, brought to ours.

One row of `CONVENTIONS` for each name: torch's nn.MultiheadAttention, the families of Hugging Face,
and the variables that people use. A row says which of our arrays it is and how it is laid out.
What no row knows keeps its name. `Convention(r"qkv_proj\.weight", ("W_Q", "W_K", "W_V"), PACKED_LINEAR)`
is all of a row; `tests/check/foreign/make.py` writes arrays of real modules that hold it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.names import (
    B_O,
    BIAS,
    CHUNK_LOGSUMEXP,
    CHUNK_OUTPUTS,
    HEAD_OUTPUTS,
    LOGSUMEXP,
    MASK,
    MEMORY,
    OUTPUT,
    PROJECTED,
    SINK,
    TABLE,
    W_O,
    WEIGHTS,
    X,
    gradient_of,
)

MATRICES, BIASES = ("W_Q", "W_K", "W_V"), ("b_Q", "b_K", "b_V")

AS_IS = "as it is"
LINEAR = "(out, in)"
PACKED = "Q, K and V side by side"
PACKED_LINEAR = "Q, K and V below one another, (out, in)"
CONV = "(in, out), or (out, in) where the packed matrix of the file is higher than wide"
PACKED_CONV = f"Q, K and V side by side, {CONV}"
BY_HEAD = "for each head its Q, K and V"
BY_HEAD_LINEAR = "for each head its Q, K and V below one another, (out, in)"
HIDES = "true where a key is hidden"
VALUES = "what V is made of: the same as for K, or not known"
IF_SCORES = "as it is, where its sizes are those of queries and keys"


class Convention(NamedTuple):
    """A name of others: a regular expression of the end of it, what it is here, and its layout.

    The row holds only where the file has an array with a name that ends like `beside`.
    """

    theirs: str
    ours: tuple[str, ...]
    layout: str = AS_IS
    beside: str = ""


OF_TORCH = r"in_proj_weight|q_proj_weight"
"""The matrices of nn.MultiheadAttention, whose query, key and value are what is projected."""

NAMES_OF = {
    "Q": r"q|query|queries|q_proj|q_lin|to_q|wq|w_q",
    "K": r"k|key|keys|k_proj|k_lin|to_k|wk|w_k",
    "V": r"v|value|values|v_proj|v_lin|to_v|wv|w_v",
}
"""What the modules that make Q, K and V are called; a bare name is what comes out of them."""

OUT = r"out_proj|o_proj|out_lin|to_out\.0|to_out|(?<!DenseReluDense\.)wo|w_o|o|attn\.proj"
OUT += r"|attention\.output\.dense|attention\.dense"
"""What the module after the heads is called."""

NORMS_OF = {
    "Q": r"q_norm|q_layernorm|query_norm|query_layernorm|norm_q",
    "K": r"k_norm|k_layernorm|key_norm|key_layernorm|norm_k",
}
"""What the norms of Q and K are called; a bare name is what comes out of them, or their weight."""

SCORE_NAMES = r"att(?:n|ention)?_(?:scores?|logits)"

PACKED_NAMES = r"qkv|qkv_proj|Wqkv|in_proj|to_qkv"


def of_projections() -> Iterator[Convention]:
    """The modules that make Q, K and V, one by one."""
    for symbol, names in NAMES_OF.items():
        yield Convention(rf"(?:{names})\.weight", (f"W_{symbol}",), LINEAR)
        yield Convention(rf"(?:{names})\.bias", (f"b_{symbol}",))
        yield Convention(f"{symbol.lower()}_proj_weight", (f"W_{symbol}",), LINEAR)
        yield Convention(
            rf"{names}|x{symbol.lower()}|{word_of(symbol)}_(?:states|layer|vectors)", (symbol,)
        )
        yield Convention(
            rf"{symbol.lower()}_(?:embed|rot|rotated|rope)|{word_of(symbol)}_rot(?:ated)?",
            (f"{symbol}_rotated",),
        )


def of_norms() -> Iterator[Convention]:
    for symbol, names in NORMS_OF.items():
        yield Convention(rf"(?:{names})\.weight", (f"{symbol}_norm_weight",))
        yield Convention(rf"(?:{names})\.bias", (f"{symbol}_norm_bias",))
        yield Convention(
            rf"{names}|{word_of(symbol)}_normed|{symbol.lower()}_normed", (f"{symbol}_normed",)
        )


def word_of(symbol: str) -> str:
    """query, key or value."""
    return NAMES_OF[symbol].split("|")[1]


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
    Convention(r"c_attn\.weight", MATRICES, PACKED_CONV),
    Convention(r"c_attn\.bias", BIASES, PACKED),
    Convention(r"c_attn", PROJECTED, PACKED),
    Convention(r"(?<!mlp\.)c_proj\.weight", (W_O,), CONV),
    Convention(r"(?<!mlp\.)c_proj\.bias", (B_O,)),
    Convention(r"query_key_value\.weight", MATRICES, BY_HEAD_LINEAR),
    Convention(r"query_key_value\.bias", BIASES, BY_HEAD),
    Convention(r"query_key_value", PROJECTED, BY_HEAD),
    Convention(rf"(?:{PACKED_NAMES})\.weight", MATRICES, PACKED_LINEAR),
    Convention(rf"(?:{PACKED_NAMES})\.bias", BIASES, PACKED),
    Convention(PACKED_NAMES, PROJECTED, PACKED),
    # one by one: Llama, Qwen, Mistral, Gemma, OPT, BERT, ViT, DistilBERT, T5, diffusers
    *of_projections(),
    *of_norms(),
    Convention(rf"(?:{OUT})\.weight", (W_O,), LINEAR),
    Convention(rf"(?:{OUT})\.bias", (B_O,)),
    Convention(r"output\.dense\.weight", (W_O,), LINEAR),
    Convention(r"output\.dense\.bias", (B_O,)),
    Convention(r"dense\.weight", (W_O,), LINEAR, beside=r"query_key_value\.weight"),
    Convention(r"dense\.bias", (B_O,), beside=r"query_key_value\.weight"),
    # variables
    Convention(r"x|hidden_states|inputs?|input_tensor", (X,)),
    Convention(r"encoder_hidden_states|key_value_states", (MEMORY,)),
    Convention(rf"{SCORE_NAMES}|raw_scores|qk_similarities|qk|sim|dots|pre_softmax_attn", ("scores",)),
    Convention(r"logits|S|s|energy", ("scores",), IF_SCORES),
    Convention(r"attn_probs|attention_probs|attn_weights|attn_output_weights|probs|attn|att", (WEIGHTS,)),
    Convention(
        r"(?:chunk|split|partial)s?_(?:lse|log_?sum_?exp)|lse_(?:accum|partial)|softmax_lse_accum",
        (CHUNK_LOGSUMEXP,),
    ),
    Convention(
        r"(?:chunk|split|partial)s?_(?:out|output|o)s?|(?:out|o)_(?:accum|partial)", (CHUNK_OUTPUTS,)
    ),
    Convention(r"lse|softmax_lse|log_?sum_?exp", (LOGSUMEXP,)),
    Convention(r"context_layer|context|head_out|z", (HEAD_OUTPUTS,)),
    Convention(rf"attn_output|attention_output|{OUT}|(?<!mlp\.)c_proj|out|y|outputs", (OUTPUT,)),
    Convention(r"output\.dense", (OUTPUT,)),
    Convention(r"attn_mask|attention_mask", (MASK,)),
    Convention(r"attn_bias|position_bias", (BIAS,)),
    Convention(r"sinks|(?:attn|attention)_sinks?|sink_logits?|s_aux", (SINK,)),
)

NORMED = ("Q_normed", "K_normed")

GRADIENT = re.compile(
    r"(?:(.*\.)?grad_(\w+)|(.+)[._]grad|d_?(q|k|v|o|x|y|out|output|qkv|bias|sinks?))", re.IGNORECASE
)
"""What gradients are called: grad_q, q.grad, q_grad, dq, dQ, do, dout."""

LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?=\.|$)")


@dataclass
class Understood:
    """Arrays under our names, as far as theirs are known; the others keep theirs."""

    arrays: dict[str, Array] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """Ours -> theirs, without the path of its module."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""


def read_foreign(
    found: Mapping[str, Array],
    layer: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
) -> Understood:
    """The arrays of someone's file under our names.

    `layer` is the one to read of a file with several; heads are those of packed projections, where
    the arrays do not show them. Our own names stand for themselves. Raises AttnError where a file
    has several layers and nobody says which, or not the one that is asked for.
    """
    back = {name: forward for name in found if name not in TABLE and (forward := variable_of(name))}
    if back:
        return with_gradients(found, back, layer, heads, kv_heads)
    out = Understood({name: found[name] for name in found if name in TABLE})
    theirs = of_layer([name for name in found if name not in TABLE], layer)
    rows = {name: row for name in theirs if (row := row_of(name, theirs))}
    asked = ForeignReader(found, heads or heads_shown(found, rows), kv_heads)
    for name in sorted(rows, key=lambda name: (CONVENTIONS.index(rows[name]), name)):
        asked.read(name, rows[name], out)
    out.arrays |= {name: found[name] for name in theirs if name not in rows}
    if MEMORY in out.arrays and X in out.arrays and np.array_equal(out.arrays[MEMORY], out.arrays[X]):
        del out.arrays[MEMORY]
    return out


def variable_of(name: str) -> str:
    """The array that this is the gradient by: q of q.grad, grad_q and dq; "" where it is no gradient."""
    found = GRADIENT.fullmatch(name)
    if found is None:
        return ""
    path, *names = (each or "" for each in found.groups())
    forward = "".join(names)
    return path + (forward if forward in TABLE or len(forward) > 1 else forward.lower())


def with_gradients(
    found: Mapping[str, Array], back: Mapping[str, str], layer: int | None, *heads: int | None
) -> Understood:
    """The arrays under our names, those of the backward pass by what they are gradients by."""
    out = read_foreign({name: found[name] for name in found if name not in back}, layer, *heads)
    theirs = {forward: name for name, forward in back.items()}
    gone = read_foreign({forward: found[name] for forward, name in theirs.items()}, layer, *heads)
    for name, array in gone.arrays.items():
        known = gradient_of(name) in TABLE
        out.arrays[gradient_of(name) if known else theirs.get(name, name)] = array
    read = {**{name: name for name in gone.arrays if name in theirs}, **gone.read}
    for ours, last in read.items():
        from_theirs = [theirs[each] for each in theirs if each.endswith(last)]
        names = [gradient_of(each) for each in ours.split() if gradient_of(each) in TABLE]
        out.read |= {" ".join(names): from_theirs[0]} if names and from_theirs else {}
    out.notes += gone.notes
    return out


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
    return re.compile(rf"(?:^|.*\.)({theirs})")


def last_part(name: str, row: Convention) -> str:
    found = pattern(row.theirs).fullmatch(name)
    assert found is not None
    return found[1]


def row_of(name: str, names: Iterable[str]) -> Convention | None:
    for row in CONVENTIONS:
        if pattern(row.theirs).fullmatch(name) and (
            not row.beside or any(pattern(row.beside).fullmatch(each) for each in names)
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
class ForeignReader:
    """Brings the arrays of one file to our names and layouts."""

    found: Mapping[str, Array]
    heads: int | None
    kv_heads: int | None

    def read(self, name: str, row: Convention, out: Understood) -> None:
        """Add what an array is to what is understood, or say why it is left out."""
        if row.layout == IF_SCORES and not self.may_be_scores(name):
            out.arrays[name] = self.found[name]
            return
        taken = [ours for ours in row.ours if ours in out.arrays and row.layout != HIDES]
        if taken:
            out.notes.append(f"{name} is left out: {taken[0]} is there already")
            return
        if row.layout == VALUES:
            self.read_values(name, out)
            return
        arrays = self.arrays(self.found[name], row)
        if arrays is None:
            out.notes.append(f"{name} is left out: --heads N says how many heads share its {len(row.ours)}")
            return
        names = row.ours
        if names == (OUTPUT,) and self.is_by_head(arrays[0], out):
            names = (HEAD_OUTPUTS,)
        if names[0] in NORMED and arrays[0].ndim == 1:
            names = (f"{names[0][0]}_norm_weight",)
        for ours, array in zip(names, arrays, strict=True):
            out.arrays[ours] = both(out.arrays[ours], array) if ours in out.arrays else array
        out.read[" ".join(names)] = last_part(name, row)

    def is_by_head(self, output: Array, out: Understood) -> bool:
        """True if what attention gives still has its heads, as a fused kernel gives it, laid out as V."""
        if HEAD_OUTPUTS in out.arrays:
            return False
        v = out.arrays.get("V")
        return output.ndim == 4 or (W_O not in out.arrays and v is not None and v.ndim == output.ndim)

    def may_be_scores(self, name: str) -> bool:
        """True if other arrays have as many queries and keys; logits of words have no such keys."""
        rows = {size for other in self.found if other != name for size in self.found[other].shape[:-1]}
        return self.found[name].ndim > 1 and rows.issuperset(self.found[name].shape[-2:])

    def read_values(self, name: str, out: Understood) -> None:
        """V is made of what K is made of; where it is not, nothing here can tell what V is."""
        keys = out.arrays.get(MEMORY, out.arrays.get(X))
        if keys is not None and not np.array_equal(keys, self.found[name]):
            out.notes.append(f"{name} is left out: V is made of it alone; record V instead")
            for lost in ("W_V", "b_V"):
                out.arrays.pop(lost, None)

    def arrays(self, array: Array, row: Convention) -> list[Array] | None:
        """Our arrays of one of theirs; None where nothing tells how many heads there are."""
        if row.layout == HIDES:
            return [~array if array.dtype == bool else array]
        if row.layout in {LINEAR, PACKED_LINEAR, BY_HEAD_LINEAR} or (
            row.layout in {CONV, PACKED_CONV} and self.is_linear()
        ):
            array = array.T
        if row.layout in {PACKED, PACKED_LINEAR, PACKED_CONV}:
            return self.side_by_side(array)
        if row.layout in {BY_HEAD, BY_HEAD_LINEAR}:
            return None if self.heads is None else split_interleaved(array, self.heads)
        return [array]

    def is_linear(self) -> bool:
        """True if the packed matrix of GPT-2's names is one of nn.Linear, as nanoGPT has it."""
        packed = (self.found[name].shape for name in self.found if name.endswith("c_attn.weight"))
        return any(rows > columns for rows, columns in packed)

    def side_by_side(self, array: Array) -> list[Array] | None:
        """(…, all of Q, K and V) in three: equal, or with fewer heads of K and V where that is said."""
        total = array.shape[-1]
        if self.kv_heads is None:
            return None if total % 3 else np.split(array, 3, axis=-1)
        if self.heads is None or total % (self.heads + 2 * self.kv_heads):
            return None
        size = total // (self.heads + 2 * self.kv_heads)
        ends = [self.heads * size, (self.heads + self.kv_heads) * size]
        return np.split(array, ends, axis=-1)


def split_interleaved(array: Array, heads: int) -> list[Array] | None:
    """(…, head · (q, k, v) · d) as three of (…, head · d)."""
    *rest, total = array.shape
    if total % (3 * heads):
        return None
    by_head = array.reshape(*rest, heads, 3, total // (3 * heads))
    return [by_head[..., at, :].reshape(*rest, total // 3) for at in range(3)]


def both(mask: Array, padding: Array) -> Array:
    """A mask without the keys that are padding, (batch, key) or (key,) and true where they are not."""
    real = padding[:, None, None] if padding.ndim > 1 else padding
    return mask & real if mask.dtype == bool else np.where(real, mask, -np.inf)
