"""What the three back ends (virtual, fluid, live) have in common: their protocol, and what they give."""
