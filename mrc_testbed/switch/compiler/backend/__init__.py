"""Back end: elaborated program to C."""
