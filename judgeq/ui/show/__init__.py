"""Results as sections, which the terminal, Markdown and HTML render."""
