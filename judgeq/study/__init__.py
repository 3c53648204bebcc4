"""The paper's simulations and published rows."""
