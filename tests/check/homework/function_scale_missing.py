import numpy as np


def softmax(x, axis=-1):
    x = x - x.max(axis=axis, keepdims=True)
    return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)


def attention(query, key, value, mask=None):
    d_k = query.shape[-1]
    scores = np.matmul(query, key.T)  # wrong: no-scale
    pass
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    attn = softmax(scores)
    return np.matmul(attn, value), attn


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6, 4))
    wq, wk, wv = rng.normal(size=(3, 4, 4))
    mask = None
    out, attn = attention(x @ wq, x @ wk, x @ wv, mask)
    print(out)
