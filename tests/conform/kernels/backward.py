"""A forward pass, and backward passes as people write them: right in many ways, or with one mistake."""

import numpy as np

LN2 = np.log(2)


def t(x):
    return np.swapaxes(x, -1, -2)


def bfloat16(x):
    """Rounded to nearest, ties to even, in the upper half of a float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def wide(*arrays):
    """At least float32, as kernels count."""
    return [x.astype(np.promote_types(x.dtype, np.float32)) for x in arrays]


def hidden(shape, causal, window):
    i, j = np.arange(shape[-2])[:, None], np.arange(shape[-1])
    out = np.zeros(shape[-2:], dtype=bool)
    if causal:
        out |= j > i
    if window:
        out |= (j < i - window[0]) | (j > i + window[1])
    return out


def bent(q, k, scale, softcap):
    s = q @ t(k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return s if softcap is None else softcap * np.tanh(s / softcap)


def forward(q, k, v, causal=False, window=None, scale=None, softcap=None):
    own = q.dtype
    q, k, v = wide(q, *(np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v)))
    s = bent(q, k, scale, softcap)
    s = np.where(hidden(s.shape, causal, window), -np.inf, s)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).astype(own)


def make(near=lambda x: x, mistake="", way="", block=None):
    """A backward pass that rounds what it multiplies by `near`, in some `way`, with one mistake."""

    def backward(
        d_output, q, k, v, output, logsumexp, *, causal=False, window=None, scale=None, softcap=None
    ):
        own, share, d = q.dtype, q.shape[1] // k.shape[1], q.shape[-1]
        k, v = (np.repeat(x, share, axis=1) for x in (k, v))
        do, q, k, v, o, total = wide(d_output, q, k, v, output, logsumexp[..., None])
        scale = q.dtype.type(d**-0.5 if scale is None else scale)
        s = near(bent(q, k, scale, softcap)) if way == "every step" else bent(q, k, scale, softcap)
        gone = hidden(s.shape, causal and mistake != "not masked", window)
        grown = np.where(gone, -np.inf, s)
        if way in {"softmax again", "every step"}:
            p = np.exp(grown - grown.max(-1, keepdims=True))
            p = p / p.sum(-1, keepdims=True)
        elif way == "base 2":
            p = np.exp2(grown * q.dtype.type(1 / LN2) - total * q.dtype.type(1 / LN2))
        else:
            times = {"base 2 read as e": 1 / LN2, "no sum": 0}.get(mistake, 1)
            p = np.exp(grown - total * q.dtype.type(times))
        p = near(p)
        d_p = near(do @ t(v)) if way == "every step" else do @ t(v)
        o = bfloat16(o) if mistake == "delta of rounded output" else o
        delta = (do * o).sum(-1, keepdims=True)
        if way in {"softmax again", "delta over keys of a row", "every step"}:
            delta = (p * d_p).sum(-1, keepdims=True)
        if mistake == "delta over keys":
            delta = (p * d_p).sum(-2, keepdims=True)
        d_s = p * (d_p if mistake == "no delta" else d_p - delta)
        if softcap is not None and mistake != "no slope":
            d_s = d_s * (1 - np.square(s / softcap))
        d_s = near(d_s * {"not scaled": 1, "scaled twice": scale**2}.get(mistake, scale))
        last = q.shape[2] // 8 * 8 if mistake == "last block dropped" else None
        back = d_s if mistake == "scores not transposed" else t(d_s)
        held = p if mistake == "weights not transposed" else t(p)
        d_q = product(d_s, k, block, near)
        d_k = product(back[..., :last], q[..., :last, :], block, near)
        d_v = product(held[..., :last], do[..., :last, :], block, near)
        d_q = d_q * {"dQ five times": 5}.get(mistake, 1)
        d_v = d_v / {"only dV wrong": 0.9}.get(mistake, 1)
        if mistake == "dV of rolled rows":
            d_v = np.roll(d_v, 1, axis=2)
        if mistake == "dK and dV exchanged":
            d_k, d_v = d_v, d_k
        d_k, d_v = (x.reshape(len(x), -1, share, *x.shape[2:]) for x in (d_k, d_v))
        d_k, d_v = (x[:, :, -1] if mistake == "groups not summed" else x.sum(2) for x in (d_k, d_v))
        return tuple(near(x).astype(own) for x in (d_q, d_k, d_v))

    return backward


def product(a, b, block, near):
    """A b, summed over blocks into an accumulator of float32, or of the type itself."""
    if block is None:
        return a @ b
    out = 0.0
    for at in range(0, a.shape[-1], block):
        out = near(out + a[..., at : at + block] @ b[..., at : at + block, :])
    return out


def two_loops(d_output, q, k, v, output, logsumexp, causal=False):
    """As FlashAttention-2: a block of keys at a time, all queries inside; d_Q is added to."""
    assert q.shape[1] == k.shape[1]
    own = q.dtype
    do, q, k, v, o, total = wide(d_output, q, k, v, output, logsumexp)
    delta, scale = (do * o).sum(-1), q.dtype.type(q.shape[-1] ** -0.5)
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for j in range(0, k.shape[2], 8):
        for i in range(0, q.shape[2], 8):
            rows, columns = np.s_[..., i : i + 8, :], np.s_[..., j : j + 8, :]
            s = q[rows] @ t(k[columns]) * scale
            if causal:
                s = np.where(
                    np.arange(j, j + s.shape[-1]) > np.arange(i, i + s.shape[-2])[:, None], -np.inf, s
                )
            p = np.exp(s - total[..., i : i + 8, None])
            d_s = p * (do[rows] @ t(v[columns]) - delta[..., i : i + 8, None]) * scale
            d_v[columns] += t(p) @ do[rows]
            d_k[columns] += t(d_s) @ q[rows]
            d_q[rows] += d_s @ k[columns]
    return tuple(x.astype(own) for x in (d_q, d_k, d_v))


def by_einsum(grad_out, query, key, value, out, lse, scale=None):
    """Under other names, and back as a mapping in another order; no grouped heads."""
    assert query.shape[1] == key.shape[1]
    own = query.dtype
    do, q, k, v, o, total = wide(grad_out, query, key, value, out, lse)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    p = np.exp(np.einsum("bhid,bhjd->bhij", q * scale, k) - total[..., None])
    d_p = np.einsum("bhie,bhje->bhij", do, v)
    d_s = p * (d_p - np.einsum("bhie,bhie->bhi", do, o)[..., None])
    return {
        "dv": np.einsum("bhij,bhie->bhje", p, do).astype(own),
        "dk": np.einsum("bhij,bhid->bhjd", d_s, q * scale).astype(own),
        "dq": (np.einsum("bhij,bhjd->bhid", d_s, k) * scale).astype(own),
    }


def of_delta(q, k, v, d_output, delta, logsumexp):
    """Takes delta, and no output; Q, K and V first; no grouped heads."""
    assert q.shape[1] == k.shape[1]
    own = q.dtype
    do, q, k, v = wide(d_output, q, k, v)
    scale = q.shape[-1] ** -0.5
    p = np.exp(q @ t(k) * scale - logsumexp[..., None])
    d_s = p * (do @ t(v) - delta[..., None]) * scale
    return tuple(x.astype(own) for x in (d_s @ k, t(d_s) @ q, t(p) @ do))


def tokens_first(d_output, q, k, v, output, lse):
    """(batch, n, head, d), with a log-sum-exp by head as FlashAttention has it."""
    turned = [np.swapaxes(x, 1, 2) for x in (d_output, q, k, v, output)]
    return tuple(np.swapaxes(x, 1, 2) for x in make()(*turned, lse))


def packed(d_output, qkv, output, lse):
    """Q, K and V in one array, (3, batch, head, n, d), and so their gradients."""
    return np.stack(make()(d_output, *qkv, output, lse))


def into_buffers(dout, q, k, v, out, softmax_lse, dq, dk, dv, softmax_scale):  # noqa: PLR0917  (its own)
    """Writes the gradients to arrays that it is given, as FlashAttention's does."""
    dq[...], dk[...], dv[...] = make()(dout, q, k, v, out, softmax_lse, scale=softmax_scale)
    return (dout * out).sum(-1)


def of_weights(dy, q, k, v):
    """Remembers nothing of the forward; one kv head is broadcast, and nothing is summed over groups."""
    do, wide_q, wide_k, wide_v = wide(dy, q, k, v)
    scale = q.shape[-1] ** -0.5
    s = wide_q @ t(wide_k) * scale
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    d_p = do @ t(wide_v)
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) * scale
    return tuple(x.astype(q.dtype) for x in (d_s @ wide_k, t(d_s) @ wide_q, t(p) @ do))


def with_bias(d_output, q, k, v, attn_bias, out, lse):
    """Returns the gradient by a bias, too; nothing is by groups."""
    assert q.shape[1] == k.shape[1]
    scale = q.shape[-1] ** -0.5
    p = np.exp(q @ t(k) * scale + attn_bias - lse[..., None])
    d_s = p * (d_output @ t(v) - (d_output * out).sum(-1, keepdims=True))
    return d_s @ k * scale, t(d_s) @ q * scale, t(p) @ d_output, d_s


def hidden_forward(q, k, v, mask=None):
    s = q @ t(k) * q.shape[-1] ** -0.5
    s = s if mask is None else np.where(mask, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).astype(q.dtype)


def seen_again(d_output, q, k, v, logsumexp, mask=None):
    """Masked forward alone: the weights are made again without the mask, and delta of them."""
    scale = q.shape[-1] ** -0.5
    p = np.exp(q @ t(k) * scale - logsumexp[..., None])
    d_p = d_output @ t(v)
    d_s = p * (d_p - (p * d_p).sum(-1, keepdims=True)) * scale
    return d_s @ k, t(d_s) @ q, t(p) @ d_output
