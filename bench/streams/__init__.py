"""Aggregate throughput of many streams: this house against llama-server's engine, in one run."""
