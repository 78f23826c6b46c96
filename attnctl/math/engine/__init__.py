"""A derivation carried out, in tiles where that saves memory, and what it costs."""
