"""Attention as people write it out, in modules of torch; which of them is said on the command line."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Part(nn.Module):
    """A projection to Q, K and V, two heads of it."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def heads(self, x):
        rows = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return rows.unbind(0)


class ViT(Part):
    """As timm writes it out."""

    def forward(self, x):
        q, k, v = self.heads(x)
        attn = (q @ k.transpose(-2, -1)) * 8**-0.5
        attn = attn.softmax(dim=-1)
        return (attn @ v).transpose(1, 2).flatten(2)


class Swin(Part):
    """Windows with a bias of each head, and a mask that is added for windows of a shifted picture."""

    def __init__(self, shifted=True):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, 6, 6))
        self.shifted = shifted
        self.drop = nn.Dropout(0.0)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x):
        q, k, v = self.heads(x)
        q = q * 8**-0.5
        attn = q @ k.transpose(-2, -1)
        attn = attn + self.table.unsqueeze(0)
        if self.shifted:
            half = torch.arange(6) < 3
            mask = torch.zeros(2, 6, 6)
            mask[1] = torch.where(half[:, None] == half, 0.0, -100.0)
            attn = attn.view(-1, 2, 2, 6, 6) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, 2, 6, 6)
        attn = self.drop(self.softmax(attn))
        return (attn @ v).transpose(1, 2).flatten(2)


class Einsum(Part):
    """Causal, with tokens before heads."""

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.heads(x))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5
        seen = torch.ones(6, 6, dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)


class NonLocal(Part):
    """Values as columns, softmax by a function, products of matrices."""

    def forward(self, x):
        q, k, v = (part.flatten(0, 1) for part in self.heads(x))
        attn = torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1)
        out = torch.bmm(v.transpose(1, 2), attn.transpose(1, 2))
        return out.transpose(1, 2).unflatten(0, (-1, 2)).transpose(1, 2).flatten(2)


class Distances(Part):
    """One member alone, with a bias by distance."""

    def forward(self, x):
        q, k, v = self.heads(x[:1])
        at = torch.arange(6)
        attn = q @ k.mT - torch.tensor([0.5, 0.25])[:, None, None] * (at[:, None] - at).abs()
        return (attn.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Unclear(Part):
    """A bias that one member has alone: it could be anything."""

    def forward(self, x):
        q, k, v = self.heads(x[:1])
        attn = q @ k.mT + torch.randn(2, 6, 6)
        return (attn.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Dropped(Part):
    def attend(self, q, k, v):
        attn = F.dropout((q @ k.mT).softmax(-1), 0.5, training=True)
        return attn @ v

    def forward(self, x):
        return self.attend(*self.heads(x)).transpose(1, 2).flatten(2)


class Columns(Part):
    """Softmax over queries."""

    def forward(self, x):
        q, k, v = self.heads(x)
        return ((q @ k.mT).softmax(-2) @ v).transpose(1, 2).flatten(2)


class Classifier(nn.Module):
    """No attention: what softmax gives is not multiplied with anything."""

    def forward(self, x):
        return (x @ torch.randn(16, 10)).softmax(-1).argmax(-1)


goes_back = "backward" in sys.argv
x = torch.randn(4, 6, 16)
with torch.set_grad_enabled(goes_back):
    for name in [word for word in sys.argv[1:] if word != "backward"]:
        model = globals()[name]()
        for _ in range(2):
            y = model(x)
            if goes_back:
                y.square().sum().backward()
        print(name, tuple(y.shape))
