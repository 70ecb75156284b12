"""The documents as a site (`make docs`): pages that the code makes, and the hooks of mkdocs."""
