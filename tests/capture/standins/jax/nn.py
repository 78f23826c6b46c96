import numpy as np
from torch.nn.functional import scaled_dot_product_attention


def dot_product_attention(
    query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, local_window_size=None,
    query_seq_lengths=None,
):  # fmt: skip
    q, k, v = (array.swapaxes(-3, -2) for array in (query, key, value))
    if local_window_size is not None:
        near = np.arange(q.shape[-2])[:, None] - np.arange(k.shape[-2])
        mask = (near <= local_window_size[0]) & (-near <= local_window_size[1])
    mask = bias if mask is None else mask
    return scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale).swapaxes(-3, -2)
