import numpy as np

B = 4
rng = np.random.default_rng(6)
n, d = 12, 6
q, k, v = (np.split(part, n // B) for part in rng.normal(size=(3, n, d)))
largest = [np.full((B, 1), -1e10) for _ in q]
total = [np.zeros((B, 1)) for _ in q]
out = [np.zeros((B, d)) for _ in q]

for k_j, v_j in zip(k, v):
    for i, q_i in enumerate(q):
        s = q_i @ k_j.T / d**0.5
        now = np.maximum(largest[i], s.max(-1, keepdims=True))
        p = np.exp(s - now)
        shrink = np.exp(largest[i] - now)
        both = shrink * total[i] + p.sum(-1, keepdims=True)
        out[i] = (total[i] * out[i] + p @ v_j) / both  # wrong: online-not-rescaled
        total[i] = both
        largest[i] = now
print(np.concatenate(out))
