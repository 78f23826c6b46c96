"""Measure the heads of attention: per dump, over all of them, and through layers."""
