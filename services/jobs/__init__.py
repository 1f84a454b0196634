"""The job service: durable work made of several calls."""
