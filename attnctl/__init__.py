"""attnctl: every number in attention, from the shell, and where yours goes wrong."""

__version__ = "0.1.0"
