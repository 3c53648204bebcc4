"""Judgments made elsewhere."""
