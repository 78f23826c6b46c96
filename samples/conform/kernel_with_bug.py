import numpy as np


def attention(q, k, v, block=16):
    top, total, out = -np.inf, 0.0, 0.0
    for j in range(0, k.shape[2], block):
        s = q @ k[:, :, j : j + block].swapaxes(-1, -2) * q.shape[-1] ** -0.5
        new = np.maximum(top, s.max(-1, keepdims=True))
        p = np.exp(s - new)
        total = total * np.exp(top - new) + p.sum(-1, keepdims=True)
        out = out + p @ v[:, :, j : j + block]
        top = new
    return out / total
