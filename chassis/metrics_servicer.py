"""cohabit.common.v1.MetricsService: this process's metrics over the address that it serves."""

from typing import Any

import grpc

from chassis import metrics
from cohabit.common.v1 import metrics_pb2 as pb
from cohabit.common.v1 import metrics_pb2_grpc as rpc

NAME = str(pb.DESCRIPTOR.services_by_name["MetricsService"].full_name)


class MetricsServicer(rpc.MetricsServiceServicer):
    """wire ↔ the process's registry"""

    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GetMetricsResponse:
        return pb.GetMetricsResponse(text=await metrics.text())


def add_metrics_service(server: grpc.aio.Server) -> None:
    """Register it."""
    rpc.add_MetricsServiceServicer_to_server(MetricsServicer(), server)
