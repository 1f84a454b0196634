"""Foreground estimation beside pymatting: error and speed. `make bench-matte`; ../README.md."""
