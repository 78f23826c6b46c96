"""Anyone's arrays, brought to the layout and the names of attnctl."""
