import numpy as np
from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 6, 4, 8)).astype(np.float32)
ends, of_queries = np.array([0, 2, 3, 6]), np.array([0, 1, 2, 3])
flash_attn_varlen_func(q, k, v, ends, ends, 3, 3, causal=True)
flash_attn_varlen_func(q[:3], k, v, of_queries, ends, 1, 3)
flash_attn_varlen_func(q[:3], k, v, of_queries, ends, 1, 3, causal=True)

q = rng.normal(size=(2, 2, 4, 8)).astype(np.float32)
k, v = rng.normal(size=(2, 2, 9, 4, 8)).astype(np.float32)
flash_attn_with_kvcache(q, k, v, causal=True)
flash_attn_with_kvcache(q, k, v, cache_seqlens=np.array([7, 4]), causal=True)
flash_attn_with_kvcache(q, k, v, k[:, :2] * 2, v[:, :2] * 2, cache_seqlens=np.array([5, 3]), causal=True)
k, v = rng.normal(size=(2, 40, 3, 4, 8)).astype(np.float32)
k[11, 1:] = v[11, 1:] = np.nan
table = np.array([[30, 7, 2], [19, 11, 38]])
flash_attn_with_kvcache(q, k, v, cache_seqlens=np.array([9, 4]), block_table=table, causal=True)
