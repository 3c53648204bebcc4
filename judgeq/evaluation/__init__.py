"""How good scores are."""
