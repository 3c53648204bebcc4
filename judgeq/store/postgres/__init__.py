"""PostgreSQL as the store: many runs in one schema, any number of schedulers and workers."""
