"""torch's scaled_dot_product_attention, as it is.

attnctl conform samples/conform/torch_sdpa.py:attention --like sdpa --framework torch --quick --backward
"""

from torch.nn.functional import scaled_dot_product_attention


def attention(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    return scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
    )
