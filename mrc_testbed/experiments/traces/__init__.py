"""Traces of training jobs, read into programs: MLCommons Chakra execution traces, GOAL schedules."""
