"""Statistics of a corpus in parts: constant in size, and the same whatever the parts and their order."""
