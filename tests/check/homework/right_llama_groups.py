import numpy as np

HEADS, SHARED, WIDTH = 4, 2, 6
rng = np.random.default_rng(5)
hidden = rng.normal(size=(9, HEADS * WIDTH))
to_q, to_k, to_v = (rng.normal(size=(HEADS * WIDTH, n * WIDTH)) / 4 for n in (HEADS, SHARED, SHARED))
gain = 1 + rng.normal(size=WIDTH) / 8


def rms(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def rope(x, base=500.0):
    speed = base ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
    angle = np.arange(x.shape[1])[:, None] * speed
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def split(x, count):
    return x.reshape(len(x), count, WIDTH).swapaxes(0, 1)


q = rope(rms(split(hidden @ to_q, HEADS)))
k = rope(rms(split(hidden @ to_k, SHARED)))
v = split(hidden @ to_v, SHARED)
groups = q.reshape(SHARED, HEADS // SHARED, len(hidden), WIDTH)
s = np.einsum("kgid,kjd->kgij", groups, k) / np.sqrt(WIDTH)
s = np.where(np.tri(len(hidden), dtype=bool), s, -np.inf)
p = np.exp(s - s.max(-1, keepdims=True))
p /= p.sum(-1, keepdims=True)
y = np.einsum("kgij,kjd->ikgd", p, v).reshape(len(hidden), -1)
print(y.shape)
