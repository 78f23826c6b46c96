"""Flash attention in Pallas, causal or not; interpret=True runs it without a TPU or a GPU.

attnctl conform samples/conform/pallas_attention.py:attention --framework jax --quick --dtype float32 --feature attention --feature causal --feature "grouped heads"
"""  # noqa: E501  (a line of shell)

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

BLOCK = 16


def kernel(q_ref, k_ref, v_ref, out_ref, *, queries, keys, scale, causal):  # noqa: PLR0913  (static numbers)
    """One block of queries of one head, over blocks of keys."""
    rows = pl.program_id(2) * BLOCK + jnp.arange(BLOCK)
    q = q_ref[0, 0].astype(jnp.float32)

    def add_block(number, state):
        top, total, mean = state
        key = number * BLOCK + jnp.arange(BLOCK)
        block = pl.ds(number * BLOCK, BLOCK)
        k = k_ref[0, 0, block].astype(jnp.float32)
        v = v_ref[0, 0, block].astype(jnp.float32)
        scores = jnp.dot(q, k.T, precision="highest") * scale
        seen = key[None, :] < keys
        if causal:  # the last query is beside the last key
            seen &= key[None, :] <= rows[:, None] + keys - queries
        scores = jnp.where(seen, scores, -jnp.inf)

        new = jnp.maximum(top, scores.max(axis=1))
        shift = jnp.where(jnp.isneginf(new), 0.0, new)  # nothing is seen yet
        weights = jnp.exp(scores - shift[:, None])
        kept = jnp.exp(top - shift)
        total = total * kept + weights.sum(axis=1)
        mean = mean * kept[:, None] + jnp.dot(weights, v, precision="highest")
        return new, total, mean

    start = (jnp.full(BLOCK, -jnp.inf), jnp.zeros(BLOCK), jnp.zeros((BLOCK, v_ref.shape[-1])))
    _, total, mean = jax.lax.fori_loop(0, k_ref.shape[2] // BLOCK, add_block, start)
    out_ref[0, 0] = (mean / jnp.where(total == 0, 1, total)[:, None]).astype(out_ref.dtype)


@partial(jax.jit, static_argnames=("causal", "scale"))
def attention(q, k, v, causal=False, scale=None):
    """Attention of (batch, head, n, d)."""
    batch, heads, queries, d = q.shape
    share, keys, d_v = heads // k.shape[1], k.shape[2], v.shape[-1]
    q, k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % BLOCK), (0, 0))) for x in (q, k, v))

    def whole(width):
        return pl.BlockSpec((1, 1, k.shape[2], width), lambda b, h, _: (b, h // share, 0, 0))

    def block(width):
        return pl.BlockSpec((1, 1, BLOCK, width), lambda b, h, i: (b, h, i, 0))

    scale = d**-0.5 if scale is None else scale
    run = pl.pallas_call(
        partial(kernel, queries=queries, keys=keys, scale=scale, causal=causal),
        grid=(batch, heads, q.shape[2] // BLOCK),
        in_specs=[block(d), whole(d), whole(d_v)],
        out_specs=block(d_v),
        out_shape=jax.ShapeDtypeStruct((*q.shape[:3], d_v), q.dtype),
        interpret=True,
    )
    return run(q, k, v)[:, :, :queries]
