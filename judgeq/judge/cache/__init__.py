"""Replies kept for all runs."""
