"""Luong's attention: the state of a decoder asks those of an encoder, which are also what it reads."""

import numpy as np

rng = np.random.default_rng(38)
d = 6
w_a, w_s = rng.normal(size=(2, d, d)) / d**0.5
source = np.tanh(rng.normal(size=(5, d)))
state = np.tanh(rng.normal(size=(1, d)))
for _ in range(3):
    align = np.exp(state @ (source @ w_a).T)
    align = align / align.sum(-1, keepdims=True)
    state = np.tanh((align @ source + state) @ w_s)
print(state.round(3))
