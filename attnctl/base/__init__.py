"""The ground: what every room may use."""

__version__ = "0.1.0"
