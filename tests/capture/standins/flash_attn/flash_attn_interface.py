import numpy as np
from torch.nn.functional import scaled_dot_product_attention


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1)):
    q, k, v = (array.swapaxes(-3, -2) for array in (q, k, v))
    queries, keys = q.shape[-2], k.shape[-2]
    at, seen = np.arange(queries)[:, None] + keys - queries, np.arange(keys)
    allowed = (at >= seen) if causal else np.ones((queries, keys), bool)
    allowed &= at - seen <= window_size[0] if window_size[0] >= 0 else True
    return scaled_dot_product_attention(q, k, v, allowed, scale=softmax_scale).swapaxes(-3, -2)


def flash_attn_varlen_func(  # noqa: PLR0917  (as theirs)
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False, block_table=None
):
    ends = zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:], strict=False)
    return np.concatenate([flash_attn_func(q[a:b], k[c:d], v[c:d], causal=causal) for a, b, c, d in ends])


def flash_attn_with_kvcache(  # noqa: PLR0917  (as theirs)
    q, k_cache, v_cache, k=None, v=None, cache_seqlens=None, cache_batch_idx=None, block_table=None,
    causal=False,
):  # fmt: skip
    out = []
    for at in range(len(q)):
        end = k_cache.shape[1] if cache_seqlens is None else cache_seqlens[at]
        if k is not None:
            k_cache[at, end : end + k.shape[1]], v_cache[at, end : end + k.shape[1]] = k[at], v[at]
            end += k.shape[1]
        own = [cache[at if block_table is None else block_table[at]] for cache in (k_cache, v_cache)]
        out.append(
            flash_attn_func(q[at], *(x.reshape(-1, *x.shape[-2:])[:end] for x in own), causal=causal)
        )
    return np.stack(out)
