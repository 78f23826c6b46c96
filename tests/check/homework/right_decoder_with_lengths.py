# options: --causal
"""An encoder and a decoder whose keys are hidden alike: --causal is said of the decoder with itself."""

import numpy as np

rng = np.random.default_rng(11)
d = 8


def attend(x, memory, seen, weights):
    wq, wk, wv = weights
    s = x @ wq @ (memory @ wk).swapaxes(1, 2) / np.sqrt(d)
    s = np.where(seen, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ (memory @ wv)


source, target = rng.normal(size=(2, 5, d)), rng.normal(size=(2, 5, d))
is_word = (np.arange(5) < np.array([[5], [3]]))[:, None]
of_encoder, of_itself, of_source = rng.normal(size=(3, 3, d, d)) / d**0.5
memory = source + attend(source, source, is_word, of_encoder)
y = target + attend(target, target, np.tri(5, dtype=bool), of_itself)
print((y + attend(y, memory, is_word, of_source))[:, 0])
