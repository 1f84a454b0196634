"""What the house adds to the bare decode loop. Run it with `make bench`; see README.md."""
