import numpy as np


def attend(q, k, v):
    weights = np.exp(q @ k.T)
    return weights / weights.sum(-1, keepdims=True) @ v


class Attention:
    def forward(self, q, k, v):
        return attend(q, k, v)


q, k, v = np.random.default_rng(0).normal(size=(3, 4, 8))
attend(q, k, v)
Attention().forward(q, k, v)
