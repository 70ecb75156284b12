"""Front end: source text to syntax tree."""
