"""Flash attention in Triton, causal or not, with shared heads; without a GPU the interpreter runs it.

TRITON_INTERPRET=1 attnctl conform samples/conform/triton_attention.py:attention --framework torch --quick --dtype float32 --feature attention --feature causal --feature "grouped heads"
"""  # noqa: E501  (a line of shell)

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N = 16, 16


@triton.jit
def kernel(  # noqa: PLR0913, PLR0917  (strides are numbers to Triton)
    q, k, v, out, scale, queries, keys, share,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    d: tl.constexpr, d_v: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    causal: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head, over blocks of keys."""
    block, head, member = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    columns, columns_v = tl.arange(0, D), tl.arange(0, D_V)
    q += member * q_batch + head * q_head
    k += member * k_batch + head // share * k_head
    v += member * v_batch + head // share * v_head

    is_there = (rows[:, None] < queries) & (columns[None, :] < d)
    own = tl.load(q + rows[:, None] * q_row + columns[None, :], mask=is_there, other=0.0).to(tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    mean = tl.zeros((BLOCK_M, D_V), tl.float32)

    for first in range(0, keys, BLOCK_N):
        key = first + tl.arange(0, BLOCK_N)
        of_keys = (key[:, None] < keys) & (columns[None, :] < d)
        of_values = (key[:, None] < keys) & (columns_v[None, :] < d_v)
        here = tl.load(k + key[:, None] * k_row + columns[None, :], mask=of_keys, other=0.0).to(tl.float32)
        value = tl.load(v + key[:, None] * v_row + columns_v[None, :], mask=of_values, other=0.0)
        score = tl.dot(own, tl.trans(here), input_precision="ieee") * scale
        seen = key[None, :] < keys
        if causal:  # the last query is beside the last key
            seen = seen & (key[None, :] <= rows[:, None] + keys - queries)
        score = tl.where(seen, score, float("-inf"))

        new = tl.maximum(top, tl.max(score, 1))
        shift = tl.where(new == float("-inf"), 0.0, new)  # nothing is seen yet
        weight = tl.exp(score - shift[:, None])
        kept = tl.exp(top - shift)
        total = total * kept + tl.sum(weight, 1)
        mean = mean * kept[:, None] + tl.dot(weight, value.to(tl.float32), input_precision="ieee")
        top = new

    mean = mean / tl.where(total == 0.0, 1.0, total)[:, None]
    out += member * o_batch + head * o_head
    is_there = (rows[:, None] < queries) & (columns_v[None, :] < d_v)
    tl.store(out + rows[:, None] * o_row + columns_v[None, :], mean.to(out.dtype.element_ty), mask=is_there)


def attention(q, k, v, causal=False, scale=None):
    """Attention of (batch, head, n, d)."""
    q, k, v = (x.contiguous() for x in (q, k, v))
    batch, heads, queries, d = q.shape
    d_v = v.shape[-1]
    out = torch.empty(batch, heads, queries, d_v, dtype=q.dtype)
    grid = (triton.cdiv(queries, BLOCK_M), heads, batch)
    strides = [stride for x in (q, k, v, out) for stride in x.stride()[:3]]
    scale = d**-0.5 if scale is None else scale
    kernel[grid](
        q, k, v, out, scale, queries, k.shape[2], heads // k.shape[1], *strides,
        d=d, d_v=d_v, D=max(16, triton.next_power_of_2(d)), D_V=max(16, triton.next_power_of_2(d_v)),
        causal=causal, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
    )  # fmt: skip
    return out
