"""Reading metrics in tests: of this process, of a server, of a text."""

from collections.abc import Mapping

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from chassis.channel import open_channel
from cohabit.common.v1 import metrics_pb2, metrics_pb2_grpc

DEADLINE_S = 10.0
Values = dict[str, float]


def values_in(text: str) -> Values:
    """Every sample, by its name and sorted labels, e.g. `name{a="b"}`."""
    return {
        _key(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def values_of(address: str) -> Values:
    """As a server tells them."""
    async with open_channel(address) as channel:
        stub: metrics_pb2_grpc.MetricsServiceAsyncStub = metrics_pb2_grpc.MetricsServiceStub(
            channel
        )
        request = metrics_pb2.GetMetricsRequest()
        answer = await stub.GetMetrics(request, timeout=DEADLINE_S, wait_for_ready=True)
    return values_in(answer.text)


def counted(name: str, **labels: str) -> float:
    """A sample of this process; 0 if there is none."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def _key(name: str, labels: Mapping[str, str]) -> str:
    told = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{told}}}" if told else name
