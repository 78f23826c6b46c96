import numpy as np

rng = np.random.default_rng(6)
q, k, v = rng.normal(size=(3, 4, 7, 5))
far = np.arange(7)[:, None] - np.arange(7)
slopes = 2.0 ** (-8 * np.arange(1, 5) / 4)
s = np.einsum("hid,hjd->hij", q, k) / 5**0.5
s = s + slopes[:, None, None] * far  # wrong: alibi-slopes
s = np.where(far < 0, -1e30, s)
w = np.exp(s - s.max(-1, keepdims=True))
print((w / w.sum(-1, keepdims=True) @ v).shape)
