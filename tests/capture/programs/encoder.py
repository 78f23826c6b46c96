import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2).eval()
x = torch.randn(2, 5, 16)
padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
with torch.no_grad():
    print(encoder(x, src_key_padding_mask=padding).shape)
    alone = nn.MultiheadAttention(16, 4)
    print(alone(x, x, x, average_attn_weights=False)[0].shape)
