import numpy as np

B, T, C, nh = 2, 5, 8, 2
rng = np.random.default_rng(10)


def causal_self_attention(x, c_attn, c_proj):
    q, k, v = np.split(x @ c_attn, 3, axis=-1)
    k = k.reshape(B, T, nh, C // nh).transpose(0, 2, 1, 3)
    q = q.reshape(B, T, nh, C // nh).transpose(0, 2, 1, 3)
    v = v.reshape(B, T, nh, C // nh).transpose(0, 2, 1, 3)
    att = (q @ k.swapaxes(-2, -1)) * (1.0 / np.sqrt(k.shape[-1]))
    att = np.where(np.tril(np.ones((T, T))) == 0, float("-inf"), att)
    att = np.exp(att) / np.exp(att).sum(-1, keepdims=True)
    y = att @ v
    y = y.transpose(0, 2, 1, 3).reshape(B, T, C)
    return y @ c_proj


out = causal_self_attention(rng.normal(size=(B, T, C)), rng.normal(size=(C, 3 * C)), rng.normal(size=(C, C)))
