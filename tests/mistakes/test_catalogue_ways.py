"""The ways to make a mistake beside the one that its example shows, each in lines of its own."""

from dataclasses import replace

import numpy as np
import pytest
from nearest import comes_near

from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import carry_out_example

GATHERED = "K = gather(key_pages, table, lengths)\nV = gather(value_pages, table, lengths)"
SLOPED = "biased_scores = scaled_scores - slopes[:, None, None] * "
FROM_1 = "2.0 ** (-8 * (np.arange(heads) + 1) / heads)"
HIDDEN = "attention_weights = softmax(np.where("
WEIGHED = ", scaled_scores, -np.inf))"
PAST = "past = past_{}\nnew, none = {}, 0 * past[:, :1]\npresent_{} = np.concatenate({}, axis=1)"


def present(parts):
    lines = [PAST.format(word, new, word, parts) for word, new in (("key", "K"), ("value", "V"))]
    return "\n".join(lines)


WAYS = [
    # pages
    ("page-of-another", "the first sequence", f"table = page_table[[0, 0, 0]]\n{GATHERED}"),
    ("page-of-another", "the sequence before it", f"table = page_table[[2, 0, 1]]\n{GATHERED}"),
    ("page-table-shifted", "those behind them in the table", f"table = page_table[:, ::-1]\n{GATHERED}"),
    (
        "page-read-in-full",
        "all pages of the table are read to their last slots",
        (
            "full = 0 * lengths + keys\n"
            "K = gather(key_pages, page_table, full)\nV = gather(value_pages, page_table, full)\n"
            "masked_scores = scaled_scores"
        ),
    ),
    # scores
    ("softcap-half", "", "softcapped_scores = 3 * np.tanh(scaled_scores)"),
    ("softcap-half", "", "softcapped_scores = np.tanh(scaled_scores)"),
    ("alibi-slopes", "they have the wrong sign", f"slopes = -{FROM_1}\n{SLOPED}distance"),
    ("alibi-slopes", "they are in reverse order", f"slopes = ({FROM_1})[::-1]\n{SLOPED}distance"),
    (
        "alibi-slopes",
        "they are those of eight heads",
        f"slopes = 1 / np.array([2, 4, 8, 16])\n{SLOPED}distance",
    ),
    ("alibi-slopes", "they are all 0.03", f"slopes = 0.03 + np.zeros(heads)\n{SLOPED}distance"),
    ("alibi-slopes", "they are multiplied by 2", f"slopes = 2 * {FROM_1}\n{SLOPED}distance"),
    ("alibi-distance", "its square", f"slopes = {FROM_1}\n{SLOPED}distance**2"),
    ("alibi-distance", "its root", f"slopes = {FROM_1}\n{SLOPED}distance**0.5"),
    (
        "alibi-distance",
        "that from a query 2 keys later",
        f"slopes = {FROM_1}\n{SLOPED}abs(np.arange(n)[:, None] + 2 - np.arange(n))",
    ),
    ("score-bias-wrong", "the scores are multiplied by the bias", "biased_scores = scaled_scores * bias"),
    (
        "score-bias-wrong",
        "the bias is exponentiated before it is added",
        "biased_scores = scaled_scores + np.exp(bias)",
    ),
    ("score-bias-wrong", "the bias is multiplied by 0.3", "biased_scores = scaled_scores + 0.3 * bias"),
    # softmax
    ("exp-base-2", "", "attention_weights = softmax(scaled_scores / np.log(2))"),
    (
        "softmax-plus-one",
        "",
        (
            "e = np.exp(scaled_scores - scaled_scores.max(axis=-1, keepdims=True))\n"
            "attention_weights = e / (1 + e.sum(axis=-1, keepdims=True))"
        ),
    ),
    (
        "softmax-relu",
        "",
        (
            "r = np.maximum(scaled_scores, 0)\ntotal = r.sum(axis=-1, keepdims=True)\n"
            "attention_weights = r / np.where(total == 0, 1, total)"
        ),
    ),
    ("softmax-over-batch", "the batch and queries", "attention_weights = softmax(scaled_scores, (0, 2))"),
    ("softmax-unnormalized", "", "attention_weights = np.exp(scaled_scores)"),
    # heads
    (
        "heads-split-wrong",
        "heads take their columns in turn, not in blocks",
        (
            "Q = (X @ np.concatenate(W_Q, axis=-1)).reshape(n, d_k, heads).transpose(2, 0, 1)\n"
            "K = (X @ np.concatenate(W_K, axis=-1)).reshape(n, d_k, heads).transpose(2, 0, 1)\n"
            "V = (X @ np.concatenate(W_V, axis=-1)).reshape(n, d_k, heads).transpose(2, 0, 1)"
        ),
    ),
    (
        "heads-merged-wrong",
        "the columns of the heads are interleaved",
        "concat = head_outputs.transpose(1, 2, 0).reshape(n, heads * d_k)",
    ),
    ("heads-in-other-order", "1 off", "concat = np.concatenate(head_outputs[[3, 0, 1, 2]], axis=-1)"),
    ("one-head-for-all", "2", "concat = np.concatenate([head_outputs[2]] * heads, axis=-1)"),
    ("heads-averaged", "sum", "concat = np.concatenate([head_outputs.sum(axis=0)] * heads, axis=-1)"),
    (
        "kv-heads-order",
        "kv heads are read in reverse order",
        "K_shared, V_shared = K[[1, 1, 0, 0]], V[[1, 1, 0, 0]]",
    ),
    # models
    ("gate-bare", "silu of the gate", "gated = concat * gate / (1 + np.exp(-gate))"),
    ("kv-scale-missing", "K is not multiplied by its scale", "K_dequantised = K"),
    (
        "kv-scale-divided",
        "V is",
        "V_dequantised = V / v_scale[:, None, None]",
    ),
    (
        "normalized",
        "Q is normalized to mean 0 and variance 1",
        (
            "mean = Q.mean(axis=-1, keepdims=True)\n"
            "Q = (Q - mean) / np.sqrt(((Q - mean) ** 2).mean(axis=-1, keepdims=True))"
        ),
    ),
    (
        "normalized",
        "Q is normalized to a mean square of 1",
        "Q = Q / np.sqrt((Q**2).mean(axis=-1, keepdims=True))",
    ),
    # positions
    (
        "sinusoids-wrong",
        "cosines stand before sines",
        "positions = positions[:, [1, 0, 3, 2, 5, 4, 7, 6]]",
    ),
    (
        "sinusoid-waves-wrong",
        "every column is a sine",
        "positions = np.sin(np.arange(n)[:, None] / 10000 ** (np.arange(d_model) // 2 * 2 / d_model))",
    ),
    (
        "bias-table-read",
        "the first head's numbers are read for all heads",
        "bias = np.stack([bias_table[0][bias_index]] * heads)",
    ),
    (
        "bias-table-read",
        "its index is transposed: what key i reads for query j is read for query i and key j",
        "bias = bias_table[:, bias_index.T]",
    ),
    # caches
    (
        "cache-written-wrong",
        "it is rolled by one row before it is full, and new rows are written in front of the gap",
        present("[past[:, 1:], new, none]"),
    ),
    ("cache-written-wrong", "new rows are written over its last one", present("[past[:, :-1], new, none]")),
    ("cache-written-wrong", "new rows are written a slot late", present("[past, none, new[:, :-1]]")),
    ("cache-written-wrong", "new rows are not written", present("[past, 0 * new]")),
    ("cache-written-wrong", "new rows stand before the past ones", present("[new, past]")),
    # the backward pass
    (
        "backward-groups-not-summed",
        "the last head of a group is taken",
        "d_K, d_V = d_K_shared[[1, 3]], d_V_shared[[1, 3]]",
    ),
    (
        "backward-groups-not-summed",
        "their mean is taken",
        "d_K = (d_K_shared[::2] + d_K_shared[1::2]) / 2\nd_V = (d_V_shared[::2] + d_V_shared[1::2]) / 2",
    ),
    (
        "backward-groups-not-summed",
        "those of head h, h + kv_heads, … are added up",
        "d_K = d_K_shared[:2] + d_K_shared[2:]\nd_V = d_V_shared[:2] + d_V_shared[2:]",
    ),
    (
        "backward-bias-not-summed",
        "only its last member's is kept",
        "d_bias = d_biased_scores[-1].sum(axis=0)",
    ),
    (
        "backward-bias-not-summed",
        "their mean is taken",
        "d_bias = d_biased_scores.mean(axis=0).sum(axis=0)",
    ),
    # chunks
    (
        "chunks-averaged",
        "averaged",
        "chunk_shares = 0 * chunk_logsumexp + 1 / len(chunk_logsumexp)",
    ),
    ("chunks-averaged", "added up", "chunk_shares = 0 * chunk_logsumexp + 1"),
    (
        "chunks-merged-in-other-base",
        "base 2 is read as e",
        "chunk_shares = softmax(chunk_logsumexp / np.log(2), axis=0)",
    ),
    (
        "chunks-merged-in-other-base",
        "base e is read as 2",
        "chunk_shares = softmax(chunk_logsumexp * np.log(2), axis=0)",
    ),
    (
        "chunks-merged-in-other-base",
        "exp2 of natural ones is taken",
        "chunk_shares = 2.0 ** (chunk_logsumexp - logsumexp)",
    ),
    (
        "chunks-merged-in-other-base",
        "exp of those in base 2 is taken",
        "chunk_shares = np.exp((chunk_logsumexp - logsumexp) / np.log(2))",
    ),
    (
        "chunks-sink-in-each",
        "",
        (
            "e = np.exp(chunk_logsumexp)\nsinks = (len(e) + 1) * np.exp(sink)[:, None]\n"
            "chunk_shares = e / (e.sum(axis=0) + sinks)"
        ),
    ),
    (
        "nan-added-to-mask",
        "",
        (
            "free = (np.arange(keys) == 5)[:, None] & (lengths < 6)[:, None, None, None]\n"
            "K = np.where(free, np.nan, K)\n"
            "masked_scores = scaled_scores + np.where(hidden, -np.inf, 0)\n"
            "del X, W_Q, W_K, W_V"
        ),
    ),
    # numbers that are said
    (
        "dropout-left-on",
        "0.5",
        (
            "kept = np.random.RandomState(0).random_sample(attention_weights.shape) < 0.5\n"
            "attention_weights = np.where(kept, 2 * attention_weights, 0)"
        ),
    ),
    (
        "keys-twice",
        "3",
        (
            "e = np.exp(scaled_scores)\ne[..., -3:] *= 2\n"
            "attention_weights = e / e.sum(axis=-1, keepdims=True)"
        ),
    ),
    (
        "top-k",
        "3",
        (
            "least = np.sort(scaled_scores, axis=-1)[..., -3, None]\n"
            "attention_weights = softmax(np.where(scaled_scores >= least, scaled_scores, -np.inf))"
        ),
    ),
    ("queries-dropped", "4", "head_outputs[..., -4:, :] = 0"),
    ("values-shifted", "1 place before", "head_outputs = attention_weights @ V[:, [5, 0, 1, 2, 3, 4]]"),
    ("values-shifted", "2 places after", "head_outputs = attention_weights @ V[:, [2, 3, 4, 5, 0, 1]]"),
    ("keys-dropped", "last 2", f"{HIDDEN}np.arange(n) < 4{WEIGHED}"),
    ("keys-dropped", "first 3", f"{HIDDEN}np.arange(n) >= 3{WEIGHED}"),
    ("mask-unasked", "--window 1,1", f"{HIDDEN}distance <= 1{WEIGHED}"),
    ("mask-unasked", "--causal --window 2", f"{HIDDEN}(np.tri(n) > 0) & (distance <= 2){WEIGHED}"),
    (
        "causal-offset",
        "2 keys ahead of",
        "masked_scores = np.where(np.tri(n, n, 2) > 0, scaled_scores, -np.inf)",
    ),
    (
        "window-other",
        "keys up to 3 back and 0 ahead (--causal --window 3)",
        "masked_scores = np.where((np.tri(n) > 0) & (distance <= 3), scaled_scores, -np.inf)",
    ),
    (
        "padding-lengths",
        "5, 3, 2",
        (
            "shorter = np.array([5, 3, 2])[:, None, None, None]\n"
            "masked_scores = np.where(np.arange(keys) < shorter, scaled_scores, -np.inf)"
        ),
    ),
    ("mask-some-heads", "every head but 1", "masked_scores[1] = scaled_scores[1]"),
    (
        "mask-some-members",
        "only member of the batch 2",
        "masked_scores[[0, 1, 3, 4, 5]] = scaled_scores[[0, 1, 3, 4, 5]]",
    ),
    (
        "temperature-wrong",
        "1",
        "Q_tempered = Q * (1 + 0.5 * np.log(1 + np.array([0, 1, 1, 2, 2, 3])))[:, None]",
    ),
    (
        "sinusoids-wrong",
        "positions begin at 1",
        (
            "angle = (np.arange(n) + 1)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)\n"
            "positions = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n, d_model)"
        ),
    ),
    (
        "backward-softcap-slope",
        "taken of the score before the cap",
        "d_scaled_scores = d_softcapped_scores * (1 - (scaled_scores / 3) ** 2)",
    ),
    (
        "backward-last-block-dropped",
        "4",
        "d_K = np.swapaxes(d_scores[:, :8], -1, -2) @ Q[:, :8]",
    ),
    (
        "backward-not-turned-back",
        "turned once more, forward",
        "d_Q, d_K = rotate(d_Q_rotated), rotate(d_K_rotated)",
    ),
    (
        "backward-logsumexp-base-2",
        "base e read as 2",
        (
            "total = np.exp(scaled_scores).sum(axis=-1, keepdims=True)\n"
            "again = np.exp(scaled_scores - np.log(total) * np.log(2))\n"
            "d_V = np.swapaxes(again, -1, -2) @ d_head_outputs\n"
            "d_scaled_scores = again * (d_attention_weights - delta[..., None])"
        ),
    ),
]
"""Name, what is said of the way, and lines that take it; sizes are those of the kind of its example."""


@np.errstate(all="ignore")
@pytest.mark.parametrize(
    ("name", "detail", "lines"), WAYS, ids=[f"{name} {said}" for name, said, _ in WAYS]
)
def test_a_way_to_make_a_mistake_is_planted(name, detail, lines):
    entries = [entry for entry in CATALOGUE if entry.name == name]
    shown = next(entry for entry in entries if entry.example)
    run = carry_out_example(replace(shown, example=lines))
    assert comes_near(run, entries, detail)
