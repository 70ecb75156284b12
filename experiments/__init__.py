"""Scenarios: an experiment as a file (docs/scenarios.md). model: what a file may say; load: YAML in, errors with lines;
expand: variants, sweeps and repeats into single runs.
"""
