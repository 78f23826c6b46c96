import numpy as np

rng = np.random.default_rng(15)
batch, n, d = 3, 5, 4
q, k, v = rng.normal(size=(3, batch, n, d))
lengths = np.array([5, 3, 4])


def masked_softmax(scores, lengths):
    shape = scores.shape
    rows = scores.reshape(-1, shape[-1])
    of_row = np.repeat(lengths, shape[1])
    rows[np.arange(shape[-1])[None] >= of_row[:, None]] = -1e6
    scores = rows.reshape(shape)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


print(masked_softmax(q @ k.swapaxes(1, 2) / d**0.5, lengths) @ v)
