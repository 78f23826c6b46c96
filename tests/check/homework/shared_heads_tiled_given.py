import numpy as np

rng = np.random.default_rng(77)
n, d, groups = 5, 4, 2
q = rng.normal(size=(4, n, d))
k, v = rng.normal(size=(2, 2, n, d))
keys = np.concatenate([k] * groups)  # wrong: kv-heads-tiled
values = np.repeat(v, groups, axis=0)
s = q @ keys.swapaxes(1, 2) / np.sqrt(d)
w = np.exp(s - s.max(-1, keepdims=True))
w = w / w.sum(-1, keepdims=True)
print(np.concatenate(list(w @ values), axis=-1).round(5))
