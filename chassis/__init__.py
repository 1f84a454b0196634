"""What every service shares, and nothing else: errors, wire, configuration, logs, metrics."""

import os

# Children are started by exec, never by fork; with its fork handlers on, gRPC warns at each.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
