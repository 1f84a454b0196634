"""What a call of Admit costs without a scheduler: a server of the house that grants at once.

python -P -m bench.scheduler.bare_admit ADDRESS
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import grpc

from bench.scheduler.through_shell import INSTANCE
from bench.scheduler.turns import GC_THRESHOLD
from chassis import log, loop, server
from chassis.process import die_with_parent
from cohabit.scheduler.v1 import scheduler_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]


_numbers = count()


async def _admit(request: pb.AdmitRequest, context: Context) -> AsyncIterator[pb.AdmitResponse]:
    """Granted, until the caller goes."""
    del context
    yield pb.AdmitResponse(
        granted=pb.AdmitResponse.Granted(
            permit_id=f"permit-{next(_numbers)}", model_key=request.model, instance_id=INSTANCE
        )
    )
    await asyncio.Event().wait()


async def _serve(address: str) -> None:
    name = server.service_name(pb, "SchedulerService")
    mine = server.Server((name,), drain_s=0.2)
    admit = grpc.unary_stream_rpc_method_handler(
        _admit,
        request_deserializer=pb.AdmitRequest.FromString,
        response_serializer=pb.AdmitResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler(name, {"Admit": admit})
    mine.grpc.add_generic_rpc_handlers((handler,))
    await server.run(mine, address)


if __name__ == "__main__":
    die_with_parent()
    gc.set_threshold(*GC_THRESHOLD)
    log.configure("scheduler", "info")
    loop.run(_serve(sys.argv[1]))
