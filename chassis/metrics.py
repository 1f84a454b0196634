"""Prometheus metrics that every gRPC service has, and the port they are scraped from."""

from prometheus_client import Counter, Gauge, Histogram, start_http_server

CALLS = Counter(
    "cohabit_grpc_calls_total", "Finished gRPC calls.", ["service", "method", "code", "reason"]
)
CALL_SECONDS = Histogram(
    "cohabit_grpc_call_seconds",
    "Duration of gRPC calls, streams from opening to end.",
    ["service", "method"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
OPEN_CALLS = Gauge("cohabit_grpc_open_calls", "gRPC calls in progress.", ["service", "method"])


def serve(listen: str) -> None:
    """Answer scrapes on `host:port`; an empty `listen` means none are wanted. Raises OSError."""
    if listen:
        host, _, port = listen.rpartition(":")
        start_http_server(int(port), host.strip("[]"))
