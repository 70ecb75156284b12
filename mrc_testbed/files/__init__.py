"""Files: whole or absent, named by others; memory as a folder, and the package's own data."""
