"""The diffusion service and its engine."""
