"""Grouped heads, a token at a time, with a cache."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
keys = values = torch.empty(1, 2, 0, 8)
for step in range(6):
    q, k, v = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8)
    keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
    out = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
print(out.shape)
