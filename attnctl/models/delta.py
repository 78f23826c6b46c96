"""Layers of a gated delta rule, which carry a state from token to token instead of attending.

S_t = α_t S_{t−1} (I − β_t k_t k_tᵀ) + β_t v_t k_tᵀ, read by S_t q_t (Yang et al. 2025, equation 10). A run
goes through them to the layers above; they have no weights to show.
"""

from __future__ import annotations

import numpy as np

from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.ops import RMSNorm
from attnctl.models.activations import ACTIVATIONS, sigmoid
from attnctl.models.family import DeltaSizes
from attnctl.models.layer import LayerTensors


def delta_layer(tensors: LayerTensors, x: Array) -> Array:
    """What a layer adds, of rows (token, width)."""
    tensors.refuse_foreign()
    sizes: DeltaSizes = tensors.d["delta"]
    channels, z, b, a = project(tensors, x, sizes)
    cuts = [sizes.heads * sizes.d_k, 2 * sizes.heads * sizes.d_k]
    q, k, v = np.split(convolve(tensors, channels, sizes.kernel), cuts, axis=-1)
    q, k = (unit(rearrange(part, "n (h d) -> n h d", h=sizes.heads)) for part in (q, k))
    share = sizes.v_heads // sizes.heads
    q, k = (part.repeat(share, axis=-2) for part in (q * x.dtype.type(sizes.d_k**-0.5), k))
    v, z = (rearrange(part, "n (h d) -> n h d", h=sizes.v_heads) for part in (v, z))
    decay, step = (tensors.read(use, "", (sizes.v_heads,)) for use in ("delta_decay", "delta_step"))
    alpha = np.exp(-np.exp(decay) * np.logaddexp(0, a + step))
    read = recur(q, k, v, alpha, sigmoid(b))
    weight = tensors.read("delta_norm", ".weight", (sizes.d_v,))
    gated = RMSNorm(float(tensors.d["eps"])).apply(read, weight) * z * sigmoid(z)
    return tensors.multiply("delta_o", rearrange(gated, "n h d -> n (h d)"), tensors.d["width"])


def recur(q: Array, k: Array, v: Array, alpha: Array, beta: Array) -> Array:
    """S_t q_t of every token: (token, head, d_k), (token, head, d_v) -> (token, head, d_v)."""
    state = np.zeros((*k.shape[1:], v.shape[-1]), v.dtype)  # S_tᵀ
    out = np.empty_like(v)
    for at in range(len(q)):
        state *= alpha[at, :, None, None]
        missing = v[at] - np.einsum("hk,hkv->hv", k[at], state)
        state += k[at, :, :, None] * (beta[at, :, None] * missing)[:, None]
        out[at] = np.einsum("hk,hkv->hv", q[at], state)
    return out


def project(tensors: LayerTensors, x: Array, sizes: DeltaSizes) -> tuple[Array, Array, Array, Array]:
    """Columns of Q, K and V, of the gate, of β and of α: from four matrices, or from two by head."""
    _, heads, v_heads, d_k, d_v = sizes
    both, values = 2 * heads * d_k, v_heads * d_v
    if tensors.has("delta_qkv"):
        sized = {"qkv": both + values, "z": values, "b": v_heads, "a": v_heads}
        qkv, z, b, a = (tensors.multiply(f"delta_{use}", x, size) for use, size in sized.items())
        return qkv, z, b, a
    qkvz = tensors.multiply("delta_qkvz", x, both + 2 * values).reshape(len(x), heads, -1)
    own = values // heads
    parts = np.split(qkvz, [d_k, 2 * d_k, 2 * d_k + own], axis=-1)
    steps = np.split(tensors.multiply("delta_ba", x, 2 * v_heads).reshape(len(x), heads, -1), 2, axis=-1)
    q, k, v, z, b, a = (part.reshape(len(x), -1) for part in (*parts, *steps))
    return np.concatenate([q, k, v], axis=-1), z, b, a


def convolve(tensors: LayerTensors, x: Array, kernel: int) -> Array:
    """The activation of each column's sum over the last tokens, each times its weight."""
    weight = tensors.read("delta_conv", ".weight", (x.shape[-1], 1, kernel))
    padded = np.concatenate([np.zeros((kernel - 1, x.shape[-1]), x.dtype), x])
    tokens = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=0)
    return ACTIVATIONS[tensors.d["act"]]((tokens * weight[:, 0]).sum(axis=-1))


def unit(x: Array) -> Array:
    """Rows of length 1."""
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + x.dtype.type(1e-6))
