import numpy as np
from torch.nn.functional import scaled_dot_product_attention


class LowerTriangularMask:
    pass


class BlockDiagonalMask:
    pass


def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None):
    causal = isinstance(attn_bias, LowerTriangularMask)
    mask = attn_bias if isinstance(attn_bias, np.ndarray) else None
    q, k, v = (array.swapaxes(-3, -2) for array in (query, key, value))
    return scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale).swapaxes(-3, -2)
