"""Describe a trained model, and what each of its heads does."""
