"""A campaign against the program: bad bytes, kill -9, quarrels between processes and load. `python -m tools.attack`."""
