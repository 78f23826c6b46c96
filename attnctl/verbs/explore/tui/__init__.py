"""The explorer on a terminal: the walk drawn with Textual."""
