"""Kernels whose K and V are stored in few bits, with scales, and what goes wrong in them."""

import numpy as np


def attend(q, k, v, causal):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    if causal:
        queries, keys = s.shape[-2:]
        s = np.where(np.tri(queries, keys, keys - queries, dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).astype(np.float32)


def by_head(x, scale):
    return x if scale is None else x * scale[:, None, None]


def scaled(q, k, v, k_scale=None, v_scale=None, causal=False):
    return attend(q, by_head(k, k_scale), by_head(v, v_scale), causal)


def unscaled(q, k, v, causal=False):
    return attend(q, k, v, causal)


def of_members(q, k, v, q_descale, k_descale, v_descale, causal=False):
    """As flash-attn has them: (batch, head), all three of which it must be given."""
    q, k, v = (x * s[:, :, None, None] for x, s in ((q, q_descale), (k, k_descale), (v, v_descale)))
    return attend(q, k, v, causal)


def of_all(q, k, v, k_scale=1.0, v_scale=1.0):
    return attend(q, k * float(k_scale), v * float(v_scale), causal=False)


def cached(q, k, v, past_key=None, past_value=None, *, k_scale=None, v_scale=None, causal=False):
    if past_key is not None:
        k = np.concatenate([past_key, k], axis=2)
        v = np.concatenate([past_value, v], axis=2)
    return scaled(q, k.astype(np.float32), v.astype(np.float32), k_scale, v_scale, causal)


def in_pages(q, k_cache, v_cache, page_table, key_lengths, k_scale, v_scale):
    """Each page has a scale of its own."""
    out = np.zeros((*q.shape[:3], v_cache.shape[3]), np.float32)
    for member, row in enumerate(page_table):
        pages = row[row >= 0]
        k, v = (
            np.concatenate(cache[pages].astype(np.float32) * scale[pages][:, None, None, None])
            for cache, scale in ((k_cache, k_scale), (v_cache, v_scale))
        )
        k, v = (x[: key_lengths[member]].swapaxes(0, 1) for x in (k, v))
        out[member] = attend(q[member].swapaxes(0, 1), k, v, causal=False).swapaxes(0, 1)
    return out


RIGHT_STORED = [
    (unscaled, "float8_e4m3", {}),
    (unscaled, "float32/bfloat16", {}),
    (scaled, "float8_e5m2", {}),
    (of_members, "float8_e4m3", {"scales": "(batch, head)"}),
    (of_all, "float8_e4m3", {"scales": "one number"}),
    (cached, "bfloat16/int8", {}),
    (cached, "float32/float8_e4m3", {}),
    (in_pages, "bfloat16/float8_e4m3", {"scales": "(page)"}),
]


def exchanged(q, k, v, k_scale=None, v_scale=None, causal=False):
    return scaled(q, k, v, v_scale, k_scale, causal)


def inverted(q, k, v, k_scale=None, v_scale=None, causal=False):
    by = [None if scale is None else 1 / scale for scale in (k_scale, v_scale)]
    return scaled(q, k, v, *by, causal)


def left_out(q, k, v, k_scale=None, v_scale=None, causal=False):
    return unscaled(q, k, v, causal)


def of_first_head(q, k, v, k_scale=None, v_scale=None, causal=False):
    by = [None if scale is None else np.full_like(scale, scale[0]) for scale in (k_scale, v_scale)]
    return scaled(q, k, v, *by, causal)


def new_keys_alone(q, k, v, past_key=None, past_value=None, *, k_scale=None, v_scale=None, causal=False):
    """The cache is read as if it had no scale."""
    k, v = by_head(k, k_scale), by_head(v, v_scale)
    return cached(q, k, v, past_key, past_value, causal=causal)


WRONG_STORED = [
    (exchanged, "kv-scales-exchanged"),
    (inverted, "kv-scale-divided"),
    (left_out, "kv-scale-missing"),
    (of_first_head, ""),
    (new_keys_alone, ""),
]
