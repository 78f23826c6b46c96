import jax
import jax.numpy as jnp

at = jax.random.split(jax.random.PRNGKey(3), 3)
q = jax.random.normal(at[0], (2, 5, 4, 8))
k, v = (jax.random.normal(each, (2, 5, 2, 8)) for each in at[1:])
print(jax.nn.dot_product_attention(q, k, v, is_causal=True))
print(jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=jnp.array([5, 3])))
print(jax.nn.dot_product_attention(q, k, v, mask=jnp.tril(jnp.ones((5, 5), bool))))
