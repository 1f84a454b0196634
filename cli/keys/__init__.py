"""`cohabit keys`: API keys made, listed, disabled, changed and removed in the file of the edge."""
