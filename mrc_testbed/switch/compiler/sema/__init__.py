"""Semantic analysis: names, types, compile-time values, instances, warnings."""
