"""What two public tests hold decode and pages to, written anew: python serving_tests.py NAME KERNEL.

Draws, sizes and tolerances are theirs, of fewer heads and shapes; the reference is in float64, and there
is no GPU.
"""

import runpy
import sys

import numpy as np


def attention(q, k, v, seen):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    s = np.where(seen, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def kvcache(kernel, rng):
    """Dao-AILab/flash-attention, tests/test_flash_attn.py, test_flash_attn_kvcache (BSD): causal.

    Off by three times at most what plain attention in half precision is off.
    """
    for queries, keys in ((1, 128), (1, 339), (3, 1024), (64, 256), (3, 799)):
        q = rng.standard_normal((2, 3, queries, 128)).astype(np.float16)
        k, v = rng.standard_normal((2, 2, 3, keys, 128)).astype(np.float16)
        seen = np.tri(queries, keys, keys - queries, dtype=bool)
        right = attention(*(x.astype(np.float64) for x in (q, k, v)), seen)
        plain = attention(q, k, v, seen)
        found = kernel(q, k, v, causal=True)
        assert np.abs(found - right).max() <= 3 * np.abs(plain - right).max() + 1e-5


def paged(kernel, rng):
    """vllm-project/vllm, tests/kernels/test_attention.py, test_paged_attention (Apache-2.0): one query.

    Q and the caches are drawn from ±1/√d, pages may be those of others, 1e-3 is allowed.
    """
    heads, d, slots, pages, longest = 4, 64, 16, 512, 2048
    reach = d**-0.5
    q = rng.uniform(-reach, reach, (7, heads, 1, d)).astype(np.float32)
    keys, values = rng.uniform(-reach, reach, (2, pages, slots, heads, d)).astype(np.float32)
    lengths = np.append(rng.randint(1, longest, 6), longest)
    table = rng.randint(0, pages, (7, longest // slots))
    found = kernel(q, keys, values, page_table=table, key_lengths=lengths)
    for member, length in enumerate(lengths):
        k, v = (x[table[member]].reshape(-1, heads, d)[:length].swapaxes(0, 1) for x in (keys, values))
        right = attention(*(x.astype(np.float64) for x in (q[member], k, v)), seen=True)
        np.testing.assert_allclose(found[member], right, rtol=1e-5, atol=1e-3)


name, file = sys.argv[1:]
globals()[name](runpy.run_path(file)["attention"], np.random.RandomState(0))
