"""Asking a server over HTTP."""
