"""Trained models: what a checkpoint is, its tensors, and the attention of its layers, in NumPy."""
