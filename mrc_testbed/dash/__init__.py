"""The live view of a running fabric: a page on loopback that draws it, tells what happens, and breaks and heals it."""
