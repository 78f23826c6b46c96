"""Runs as programs that one reads: each step a line of NumPy, PyTorch, JAX or einsum."""
