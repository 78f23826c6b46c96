"""A model of three layers, each with attention of its own; --swap puts another function in its place."""

import sys

import numpy as np
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as copy

rng = np.random.default_rng(0)


class SelfAttention(nn.Module):
    def forward(self, x):
        q, k, v = (x + rng.normal(size=(2, 4, 6, 8)).astype(np.float32) for _ in range(3))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    def __init__(self):
        self.attn = SelfAttention()

    def forward(self, x):
        return x + self.attn(x)


class Model(nn.Module):
    def __init__(self):
        self.layers = [Layer() for _ in range(3)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def swapped(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    return copy(query, key, value, is_causal=is_causal, scale=1.0)


if "--swap" in sys.argv:
    F.scaled_dot_product_attention = swapped
Model()(np.float32(0))
q = np.ones((1, 4, 2, 8), np.float32)
F.multi_head_attention_forward(q, q, q, need_weights=False)
copy(q, q[:, :2], q[:, :2], np.array([[True, False], [True, True]]))
