"""The edge in one process."""

from chassis import log
from chassis.main import Context
from chassis.server import until_signal
from edge.config import EdgeConfig
from edge.opening import opened
from edge.server import HttpServer
from edge.standing import Standing


async def serve(context: Context[EdgeConfig]) -> None:
    """Serve until told to stop. Raises ConfigError."""
    config, standing = context.own.located(context.document.path.parent), Standing()
    async with opened(context, config, standing) as app:
        server = HttpServer(app, *config.address, config.drain_s, config.linger_s, standing)
        host, port = await server.start()
        log.get().info("serving", address=f"http://{host}:{port}")
        await until_signal()
        await server.stop()
