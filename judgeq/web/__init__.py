"""All runs in the browser."""
