"""HTTP and SSE in, gRPC out: the dialects clients speak. Decides nothing about who runs."""

import os

# Read by gRPC when it is first imported, so before any other room of this package. By default one
# of a pool of threads reads from a socket and wakes the one that waits for what was read; so that
# one reads for itself, which is a fifth of what passing a message on costs.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client")
