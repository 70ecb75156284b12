"""Metrics and verdicts computed from an outcome."""
