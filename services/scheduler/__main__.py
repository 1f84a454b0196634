"""Wiring of the scheduler: config → core → shell → server."""

import asyncio
import gc

from chassis.config import ConfigError, Document, fail
from chassis.following import Following
from chassis.main import Context, run_service
from chassis.server import Server, run, service_name
from chassis.signing import Signer
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.scheduler.clients import Broker, Worker
from services.scheduler.config import SchedulerConfig
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.servicer import SchedulerServicer
from services.scheduler.settings import rules_of, settings_of
from services.scheduler.shell import SchedulerShell


async def start(context: Context[SchedulerConfig]) -> None:
    """Serve SchedulerService until told to stop."""
    own, house = context.own, context.house
    settings = settings_of(own, context.document)
    core = SchedulerCore(settings)
    names = context.document.model_services() if own.workers is None else own.workers
    workers = [Worker(name, house.address_of(name)) for name in names]
    shell = SchedulerShell(core, Broker(house.address_of("broker")), workers)
    # Running requests do not need us, and waiting ones come back with their tokens: no long drain.
    server = Server((service_name(scheduler_pb2, "SchedulerService"),), drain_s=0.2)
    server.closing.push_async_callback(shell.close)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(
        SchedulerServicer(shell, Signer.from_dir(house.state_dir), settings, frozenset(own.lanes)),
        server.grpc,
    )
    _follow(context.following, shell)
    shell.start(own.reconcile_s)
    announcing = asyncio.create_task(_serve_when_ready(shell, server))
    server.closing.callback(announcing.cancel)
    await run(server, house.listen_of("scheduler"), serving_at_once=False)


def _follow(following: Following[SchedulerConfig], shell: SchedulerShell) -> None:
    """Models are followed through their services; the rules about them stand here."""

    async def apply(config: SchedulerConfig, document: Document) -> None:
        shell.rules_changed(*rules_of(config, document))

    following.use(apply)
    following.told.append(
        lambda: shell.note_configuration(following.problem, following.restart_keys)
    )


async def _serve_when_ready(shell: SchedulerShell, server: Server) -> None:
    await shell.ready.wait()
    await server.set_serving(True)


def main() -> None:
    """Run the service; a set that cannot be read is said in one line."""
    # Requests come and go by the thousand, and hold no cycles but those that grpc makes: ten
    # kilobytes for a fault. Young ones are looked for after some hundred faults; all others, among
    # whom the whole queue is, very seldom.
    gc.set_threshold(20_000, 200, 100)
    try:
        run_service("scheduler", SchedulerConfig, start)
    except ConfigError as error:
        fail(error)


if __name__ == "__main__":
    main()
