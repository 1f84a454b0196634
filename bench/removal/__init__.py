"""Throughput of the whole removal path beside rembg's: same network file, same pictures."""
