"""Prometheus metrics of the edge: requests as they came in over HTTP, and how they ended.

Routes are templates, statuses and outcomes enums, models those that were granted: whatever a client
sends, the number of series does not grow.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from chassis.metrics import SECONDS, Bounded
from edge.standing import Standing

_MOST_MODELS = 256

REQUESTS = Counter(
    "cohabit_http_requests_total",
    "Finished HTTP requests. The outcome is ok or a reason; a stream may fail after status 200.",
    ["route", "status", "outcome"],
)
REQUEST_SECONDS = Histogram(
    "cohabit_http_request_seconds",
    "Duration of HTTP requests, to the last byte.",
    ["route"],
    buckets=SECONDS,
)
FIRST_EVENT_SECONDS = Histogram(
    "cohabit_http_first_event_seconds", "Time to the first event of a stream.", buckets=SECONDS
)
OPEN = Gauge(
    "cohabit_http_open_requests", "HTTP requests in progress.", multiprocess_mode="livesum"
)
FIRST_TOKEN_SECONDS = Histogram(
    "cohabit_time_to_first_token_seconds",
    "Time from an understood request to the first token of its answer, queue and load included.",
    ["model"],
    buckets=SECONDS,
)
DROPPED_LINES = Counter(
    "cohabit_access_log_dropped_lines_total", "Lines that the access log had no room for."
)
model_label = Bounded(_MOST_MODELS)
"""The model list is reloaded in place, so that there is no telling how many there will be."""


def house_families(up: Mapping[str, bool], standing: Standing, version: str) -> Iterable[Metric]:
    """What is known of the house as a whole at this moment."""
    answers = GaugeMetricFamily("cohabit_up", "1 if the service answers.", labels=["service"])
    for service, is_up in up.items():
        answers.add_metric([service], is_up)
    yield answers
    build = GaugeMetricFamily("cohabit_build_info", "1; which version it is.", labels=["version"])
    build.add_metric([version], 1)
    yield build
    yield GaugeMetricFamily(
        "cohabit_edge_draining", "1 once the edge has been told to stop.", standing.draining
    )
    yield GaugeMetricFamily(
        "cohabit_edge_workers", "Processes of the edge there should be.", standing.workers
    )
    yield GaugeMetricFamily(
        "cohabit_edge_workers_up", "Those of them that take requests.", standing.up
    )
