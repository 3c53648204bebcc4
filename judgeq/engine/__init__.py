"""A run: planned, asked, kept, rated."""
