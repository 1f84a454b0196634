"""What an admission costs. Run it with `make bench-scheduler`; see ../README.md."""

import chassis  # noqa: F401 - before grpc, to which it says that processes will be started
