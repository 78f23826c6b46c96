"""jax.nn.dot_product_attention, as it is.

attnctl conform samples/conform/jax_attention.py:attention --like jax --framework jax --quick --backward --dtype float32 --dtype bfloat16 --feature attention --feature "grouped heads" --feature causal --feature mask --feature "repeatable gradients"

Every size is compiled anew, so that all of it takes long.
"""  # noqa: E501  (a line of shell)

from jax.nn import dot_product_attention


def attention(  # noqa: PLR0913  (its own options)
    query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, key_value_seq_lengths=None,
    local_window_size=None,
):  # fmt: skip
    return dot_product_attention(
        query, key, value, bias, mask, scale=scale, is_causal=is_causal,
        key_value_seq_lengths=key_value_seq_lengths, local_window_size=local_window_size,
    )  # fmt: skip
