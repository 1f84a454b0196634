"""API keys: who a request is from, what that caller may do, and how much of it.

The keys stand as hashes in a file. `file` reads it, `watch` reads it again when it changes,
`credential` finds the key of a request, `keyring` knows whose it is, `core` counts what it does,
and `gate` is the layer in front of all routes that puts these together. What a route does with
its caller is the route's own affair: it asks `caller`.
"""
