"""The operator Attention of ONNX, by the reference implementation in the onnx package.

attnctl conform samples/conform/onnx_attention.py:attention --like onnx --quick
"""

import numpy as np
from onnx.reference.ops.op_attention import _compute_attention


def attention(  # noqa: PLR0913  (the operator has as many)
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    *,
    nonpad_kv_seqlen=None,
    is_causal=0,
    scale=None,
    softcap=0.0,
    left_window_size=None,
    right_window_size=None,
):
    options = {"scale": scale, "is_causal": is_causal, "softcap": softcap}
    options |= {"left_window_size": left_window_size, "right_window_size": right_window_size}
    output, *_ = _compute_attention(
        Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen=nonpad_kv_seqlen, **options
    )
    return np.asarray(output)
