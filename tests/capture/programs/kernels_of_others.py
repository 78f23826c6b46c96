import numpy as np
from flash_attn import flash_attn_func, flash_attn_with_kvcache
from jax.nn import dot_product_attention
from xformers import ops

q, k, v = np.random.default_rng(0).normal(size=(3, 2, 6, 4, 8)).astype(np.float32)
flash_attn_func(q[:, -2:], k, v, causal=True)
flash_attn_func(q, k, v, softmax_scale=0.2, causal=True, window_size=(2, 0))
flash_attn_with_kvcache(q, k, v, cache_batch_idx=[1, 0])
dot_product_attention(q, k, v, is_causal=True)
dot_product_attention(q, k, v, local_window_size=(1, 2))
dot_product_attention(q, k, v, k[:, 0, :1, None, :6] * 0)
dot_product_attention(q, k, v, query_seq_lengths=[6, 3])
ops.memory_efficient_attention(q, k, v, ops.LowerTriangularMask(), scale=0.3)
ops.memory_efficient_attention(q, k, v, ops.BlockDiagonalMask())
ops.memory_efficient_attention(q, k, v, p=0.5)
