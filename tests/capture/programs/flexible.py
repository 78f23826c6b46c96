import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

q, k, v = torch.randn(3, 2, 4, 128, 16)
causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
flex_attention(q, k, v, block_mask=causal)
flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s - 0.1 * (i - j).abs(), scale=0.5)
flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf")))
flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True, return_lse=True)
flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: 20 * torch.tanh(s / 20))
