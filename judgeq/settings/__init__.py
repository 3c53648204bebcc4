"""The settings: of a run, of models, of people, of the mock server; and providers."""
