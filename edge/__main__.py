"""`python -P -m edge`: wiring only."""

from chassis import log
from chassis.config import ConfigError, fail
from chassis.main import Context, run_service
from chassis.server import until_signal
from edge.app import open_app
from edge.config import EdgeConfig
from edge.server import HttpServer


async def start(context: Context[EdgeConfig]) -> None:
    """Serve until told to stop."""
    config, house = context.own.located(context.document.path.parent), context.house
    services = {name: house.address_of(name) for name in context.document.model_services()}
    scheduler, broker = house.address_of("scheduler"), house.address_of("broker")
    jobs = house.address_of("jobs") if "jobs" in context.document.grpc_services() else ""
    async with open_app(config, scheduler, services, broker, jobs) as app:
        server = HttpServer(app, *config.address, config.drain_s)
        try:
            host, port = await server.start()
        except ConfigError as error:
            fail(error)
        log.get().info("serving", address=f"http://{host}:{port}")
        await until_signal()
        await server.stop()


if __name__ == "__main__":
    run_service("edge", EdgeConfig, start, module="edge")
