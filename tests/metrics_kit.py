"""Reading metrics in tests: of this process, of a server, of a text; and all that there may be."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from chassis.channel import open_channel
from cohabit.common.v1 import metrics_pb2, metrics_pb2_grpc
from edge.signals.metrics import house_families
from edge.standing import Standing

ROOT = Path(__file__).parents[1]
DEADLINE_S = 10.0
Values = dict[str, float]


def values_in(text: str) -> Values:
    """Every sample, by its name and sorted labels, e.g. `name{a="b"}`."""
    return {
        _key(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def values_of(address: str, within_s: float = DEADLINE_S) -> Values:
    """As a server tells them."""
    async with open_channel(address) as channel:
        stub: metrics_pb2_grpc.MetricsServiceAsyncStub = metrics_pb2_grpc.MetricsServiceStub(
            channel
        )
        request = metrics_pb2.GetMetricsRequest()
        answer = await stub.GetMetrics(request, timeout=within_s, wait_for_ready=True)
    return values_in(answer.text)


def counted(name: str, **labels: str) -> float:
    """A sample of this process; 0 if there is none."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def _key(name: str, labels: Mapping[str, str]) -> str:
    told = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{told}}}" if told else name


@dataclass(frozen=True)
class Family:
    """A metric of ours, as scraped."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    module: str


def families() -> list[Family]:
    """Every metric that the code of the house makes; the label `service`, which the edge adds, is
    among those of none but `cohabit_up`."""
    found = [_of(made, module) for module in _modules() for made in _made(module)]
    for family in house_families({"llm": True}, Standing(), "1"):
        (sample,) = family.samples
        labels = tuple(sample.labels)
        found.append(Family(family.name, family.type, labels, family.documentation, "edge"))
    return found


def _of(made: MetricWrapperBase, module: str) -> Family:
    (metric,) = made.describe()
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    return Family(name, metric.type, tuple(made._labelnames), metric.documentation, module)


def _modules() -> Iterator[str]:
    """Those that make metrics, which `tests/unit/test_metric_labels.py` holds to be all."""
    for path in sorted(ROOT.glob("*/**/metrics.py")):
        module = path.relative_to(ROOT).with_suffix("")
        if module.parts[0] in ("chassis", "hosting", "services", "edge"):
            yield ".".join(module.parts)


def _made(module: str) -> Iterator[MetricWrapperBase]:
    for value in vars(import_module(module)).values():
        if isinstance(value, MetricWrapperBase):
            yield value
        elif isinstance(value, Mapping):
            yield from (one for one in value.values() if isinstance(one, MetricWrapperBase))
