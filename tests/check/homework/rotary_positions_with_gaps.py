import torch, torch.nn as nn
torch.manual_seed(0)
def rot(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin
x = torch.randn(2, 6, 8)
pos = torch.tensor([[0, 1, 4, 5, 6, 9], [0, 2, 3, 4, 5, 6]])
q, k, v = (nn.Linear(8, 8, bias=False) for _ in range(3))
inv = 1 / 10000 ** (torch.arange(0, 4, 2) / 4)
ang = pos[:, :, None] * inv
ang = torch.cat([ang, ang], -1)[:, None]
Q, K, V = (f(x).view(2, 6, 2, 4).transpose(1, 2) for f in (q, k, v))
Q, K = rot(Q, ang.cos(), ang.sin()), rot(K, ang.cos(), ang.sin())
w = torch.softmax(Q @ K.transpose(-1, -2) / 4**0.5, -1)
print((w @ V).transpose(1, 2).reshape(2, 6, 8))
