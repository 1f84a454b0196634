"""`python -P -m edge`: wiring only."""

from chassis.main import Context, run_service
from edge.config import EdgeConfig


async def start(context: Context[EdgeConfig]) -> None:
    """Serve until told to stop."""
    # The parent of several workers serves nothing, and is spared what serving takes.
    if context.own.workers > 1:
        from edge.workers.parent import serve  # noqa: PLC0415
    else:
        from edge.alone import serve  # noqa: PLC0415
    await serve(context)


if __name__ == "__main__":
    run_service("edge", EdgeConfig, start, module="edge")
