import numpy as np

WIDTH = 8
rng = np.random.default_rng(8)
w_q, w_k, w_v = rng.normal(size=(3, WIDTH, WIDTH)) / 2
kept_k, kept_v = np.zeros((0, WIDTH)), np.zeros((0, WIDTH))


def turn(rows, first):
    angle = (first + np.arange(len(rows)))[:, None] * 100.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    pair = (rows[:, 0::2] + 1j * rows[:, 1::2]) * np.exp(1j * angle)
    return np.stack([pair.real, pair.imag], -1).reshape(rows.shape)


def attend(rows):
    global kept_k, kept_v
    first = len(kept_k)
    q = turn(rows @ w_q, 0)  # wrong: rotary-one-sided
    kept_k = np.vstack([kept_k, turn(rows @ w_k, first)])
    kept_v = np.vstack([kept_v, rows @ w_v])
    z = q @ kept_k.T / WIDTH**0.5
    z[np.arange(len(kept_k)) > first + np.arange(len(rows))[:, None]] = -1e9
    a = np.exp(z - z.max(1, keepdims=True))
    return a / a.sum(1, keepdims=True) @ kept_v


words = rng.normal(size=(9, WIDTH))
out = [attend(words[:5])]
for i in range(5, 9):
    out.append(attend(words[i : i + 1]))
print(np.vstack(out).shape)
