"""The documents as a site: pages that the code makes, and the hooks with which mkdocs builds it (`make docs`)."""
