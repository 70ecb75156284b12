"""Common parts of the three back ends (virtual, fluid, live): protocol, outcome, failures."""
