"""The broker: permission to hold device memory, and the truth about the device.

It lends and keeps the ledger. It never allocates, frees or evicts memory itself.
"""
