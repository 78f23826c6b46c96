r"""The names that other programs give to the arrays of attention, brought to ours.

Programs call an array as it is by one of `WORDS`. What torch's nn.MultiheadAttention and the families of
Hugging Face keep otherwise has a row of `CONVENTIONS`, which says which of our arrays it is and how it is
laid out: `Convention(r"qkv_proj\.weight", ("W_Q", "W_K", "W_V"), PACKED_LINEAR)` is all of one. What no row
knows keeps its name. check, attend, `--model` and conform read the same table;
`tests/check/foreign/make.py` writes arrays of real modules that hold it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from attnctl.base.namedtuple import NamedTuple
from attnctl.math.names import (
    BIAS,
    BIAS_INDEX,
    BIAS_TABLE,
    HEAD_OUTPUTS,
    HIDDEN,
    KEY_LENGTHS,
    LAST_PAGE,
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
    W_O,
    WEIGHTS,
    X,
    gradient_of,
)

MATRICES = ("W_Q", "W_K", "W_V")
BIASES = ("b_Q", "b_K", "b_V")
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


def words_of(*names: str) -> str:
    """The regular expression of all the words for these arrays, their own names among them."""
    words: list[str] = []
    for ours in names:
        words += [ours, *WORDS[ours].split()]
    return "|".join(words)


TABLES = words_of(PAGE_TABLE, PAGE_NUMBERS)
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
    theirs = WORDS[ours].split()
    if also:
        theirs.append(also)
    return Convention("|".join(theirs), (ours,))


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
    """The rows of what Q, K and V are made with one by one, and of their norms."""
    for symbol in "QKV":
        matrix = f"W_{symbol}"
        yield from parameters(MODULES[symbol], (matrix,), LINEAR)
        yield Convention(rf"{symbol}_proj_weight", (matrix,), LINEAR)
        yield named(symbol, MODULES[symbol])

    for symbol in "QK":
        norm = f"{symbol}_norm"
        yield named(f"{symbol}_rotated")
        yield from parameters(MODULES[norm], (f"{norm}_weight",), AS_IS)
        yield named(f"{symbol}_normed", MODULES[norm])


def of_variables() -> Iterator[Convention]:
    """The rows of matrices that a program has in variables: w_query, query_weight, weight_query."""
    words = {"W_Q": "query", "W_K": "key", "W_V": "value", W_O: "out(?:put)?"}
    for ours, word in words.items():
        yield Convention(rf"w_?{word}|{word}_(?:w|weights?|matrix)|weights?_{word}", (ours,))


def of_bias_tables() -> Iterator[Convention]:
    for word in WORDS[BIAS_TABLE].split():
        yield Convention(rf"(?:{word})(?:\.weight)?", (BIAS_TABLE,), LINEAR)


def of_pages() -> Iterator[Convention]:
    """The rows of what only is in pages where there is a table of them."""
    for ours in (*PAGES, KEY_LENGTHS):
        yield named(ours)._replace(beside=TABLES)


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
    *of_variables(),
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
    *of_bias_tables(),
    named(BIAS_INDEX),
    named(HEAD_OUTPUTS),
    named("concat"),
    named(OUTPUT, rf"{MODULES[OUTPUT]}|(?<!mlp\.)c_proj"),
    Convention(r"output\.dense", (OUTPUT,)),
    *map(named, (MASK, BIAS, PAST_KEY, PAST_VALUE, *STORED_SCALES, SINK, PAGE_TABLE, *PAGE_LIST)),
    Convention(r"(?:paged_)?kv_cache", PAGES, PACKED_PAGES, beside=TABLES),
    *of_pages(),
)


@cache
def pattern(theirs: str) -> re.Pattern[str]:
    """A name that ends so, after the path of its module."""
    return re.compile(rf"(?:^|.*\.)({theirs})", re.IGNORECASE)


def row_of(name: str, names: Iterable[str]) -> Convention | None:
    """The first row that knows a name, among the names that are there."""
    for row in CONVENTIONS:
        if not pattern(row.theirs).fullmatch(name):
            continue
        if not row.beside or any(pattern(row.beside).fullmatch(other) for other in names):
            return row
    return None
