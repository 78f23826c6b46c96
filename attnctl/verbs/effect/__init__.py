"""What each head does to the next token: left out, taken from another prompt, and by itself."""
