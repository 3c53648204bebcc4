"""The report of a run: chapters, and the page or document that they make."""
