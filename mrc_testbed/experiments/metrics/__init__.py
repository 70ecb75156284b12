"""From an outcome to numbers and verdicts."""
