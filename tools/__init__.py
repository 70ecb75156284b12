"""Tools of the checkout, which no wheel has: benchmarks, campaigns, and the manual's pages."""
