"""`mrc demo`: a transfer on a live fabric, followed while links are cut under it."""
