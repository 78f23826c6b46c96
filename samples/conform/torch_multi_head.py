"""torch's nn.functional.multi_head_attention_forward: one head, and projections that change nothing.

attnctl conform samples/conform/torch_multi_head.py:attention --layout nd --framework torch --quick --backward

Its attn_mask is True where a query may NOT attend, so the function turns it round.
"""  # noqa: E501  (a line of shell)

import torch
from torch.nn.functional import multi_head_attention_forward


def attention(q, k, v, attn_mask=None):
    width, one = q.shape[-1], torch.eye(q.shape[-1], dtype=q.dtype)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    output, weights = multi_head_attention_forward(
        q, k, v, width, 1, in_proj_weight=None, in_proj_bias=None, bias_k=None, bias_v=None,
        add_zero_attn=False, dropout_p=0.0, out_proj_weight=one, out_proj_bias=None, training=False,
        attn_mask=attn_mask, use_separate_proj_weight=True, q_proj_weight=one, k_proj_weight=one,
        v_proj_weight=one,
    )  # fmt: skip
    return output, weights
