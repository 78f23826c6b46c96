"""torch's nn.MultiheadAttention itself, with projections that change nothing.

attnctl conform samples/conform/torch_multi_head.py:attention --layout bnd --framework torch --quick --backward

Its attn_mask is True where a query may NOT attend, so the function turns it round. A layer with weights
of its own is held by attnctl.testing.check_module(layer, x, x, x, backward=True), gradients by weights too.
"""  # noqa: E501  (a line of shell)

from functools import cache

import torch


@cache
def make_layer(width, heads, dtype):
    layer = torch.nn.MultiheadAttention(width, heads, bias=False, batch_first=True, dtype=dtype)
    one = torch.eye(width)
    layer.load_state_dict({"in_proj_weight": one.repeat(3, 1), "out_proj.weight": one})
    return layer


def attention(query, key, value, num_heads, attn_mask=None):
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    layer = make_layer(query.shape[-1], num_heads, query.dtype)
    output, _ = layer(query, key, value, attn_mask=attn_mask, need_weights=False)
    return output
