"""Files: whole or absent, named by others, owned by whom; the cache, memory as a folder, and the package's own data."""
