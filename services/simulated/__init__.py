"""Models that only pretend: they take up the memory and the time of their profile, nothing else.

For running the whole house, at its real size, without a card. They live on a simulated device
alone.
"""
