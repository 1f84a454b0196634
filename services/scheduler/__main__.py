"""Wiring of the scheduler: config → core → shell → server."""

import asyncio

from chassis.main import Context, run_service
from chassis.server import Server, run, service_name
from chassis.signing import Signer
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.clients import Broker, Worker
from services.scheduler.config import SchedulerConfig
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.lanes import lane_table
from services.scheduler.servicer import SchedulerServicer
from services.scheduler.shell import SchedulerShell


async def start(context: Context[SchedulerConfig]) -> None:
    """Serve SchedulerService until told to stop."""
    own, house = context.own, context.house
    use_within_ms = round(own.use_within_s * 1000)
    core = SchedulerCore(own.permits, lane_table(own), own.queue_limit, use_within_ms)
    workers = [Worker(name, house.address_of(name)) for name in own.workers]
    shell = SchedulerShell(core, Broker(house.address_of("broker")), workers)
    # Running requests do not need us, and waiting ones come back with their tokens: no long drain.
    server = Server((service_name(scheduler_pb2, "SchedulerService"),), drain_s=0.2)
    server.closing.push_async_callback(shell.close)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(
        SchedulerServicer(
            shell, Signer.from_dir(house.state_dir), use_within_ms, frozenset(own.lanes)
        ),
        server.grpc,
    )
    shell.start(own.reconcile_s)
    announcing = asyncio.create_task(_serve_when_ready(shell, server))
    server.closing.callback(announcing.cancel)
    await run(server, house.listen_of("scheduler"), serving_at_once=False)


async def _serve_when_ready(shell: SchedulerShell, server: Server) -> None:
    await shell.ready.wait()
    await server.set_serving(True)


if __name__ == "__main__":
    run_service("scheduler", SchedulerConfig, start)
