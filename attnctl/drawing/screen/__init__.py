"""Text, tables and consoles; nothing here knows attention."""
