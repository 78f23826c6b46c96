"""Wrong kernels, made of the catalogue, and the tests that they are held to."""
