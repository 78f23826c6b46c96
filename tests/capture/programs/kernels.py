import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def attend(q, k, v, causal=False):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return softmax(scores) @ v


def attend_wrongly(query, key, value):
    scores = query @ np.swapaxes(key, -1, -2)
    return softmax(scores) @ value


class Attention:
    def forward(self, q, k, v):
        return attend(q, k, v), "more"
