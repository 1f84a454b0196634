"""Many short requests for a while: memory stays flat, and nothing of them is left."""
