"""A memory whose keys are of other rows than its values."""

import numpy as np

rng = np.random.default_rng(39)
d = 6
ask, look_up, read = rng.normal(size=(3, d, d)) / d**0.5
questions, titles, texts = rng.normal(size=(3, 4, d))
s = (questions @ ask) @ (titles @ look_up).T / d**0.5
e = np.exp(s - s.max(-1, keepdims=True))
print((e / e.sum(-1, keepdims=True) @ (texts @ read)).round(3))
