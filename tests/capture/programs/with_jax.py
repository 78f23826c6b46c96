import jax
import jax.numpy as jnp
from jax.nn import dot_product_attention

q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 5, 4, 8))
out = dot_product_attention(q, k, v, is_causal=True)
out = dot_product_attention(q, k[:, :, :2], v[:, :, :2], scale=0.5, mask=jnp.ones((1, 1, 5, 5), bool))
out = dot_product_attention(q, k, v, local_window_size=(2, 0))
jitted = jax.jit(lambda q, k, v: dot_product_attention(q, k, v))(q, k, v)
print(out.shape)
