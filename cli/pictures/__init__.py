"""`cohabit paint` and `cohabit cutout`: one picture from the command line, to a file."""
