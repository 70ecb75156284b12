"""Models of the JSON of commands, by their subject; json_schemas.py has the table of all."""
