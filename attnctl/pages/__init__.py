"""One-file pages: traces and findings that a browser shows and that every verb reads back."""
