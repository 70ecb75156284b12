"""Scenario language: model, YAML loader, expansion, validation, fault schedule, assertions."""
