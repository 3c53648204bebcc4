"""People who judge a run."""
