import numpy as np

rng = np.random.default_rng(75)
lengths = [4, 2, 5]
words = rng.normal(size=(3, 5, 6))
is_word = np.arange(5) < np.array(lengths)[:, None]
asked = rng.normal(size=6)
w_k, w_v = rng.normal(size=(2, 6, 6)) / np.sqrt(6)
fit = words @ w_k @ asked / np.sqrt(6)
fit = np.where(is_word, fit, -1e30)
share = np.exp(fit - fit.max(axis=1, keepdims=True))
share = share / share.sum(axis=1, keepdims=True)
print(np.einsum("bt,btd->bd", share, words @ w_v).round(5))
