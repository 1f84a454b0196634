"""The configured lanes in the core's words."""

from collections.abc import Callable

from services.scheduler.config import LaneConfig, SchedulerConfig
from services.scheduler.core.values import Lane


def lane_table(config: SchedulerConfig) -> Callable[[str], Lane]:
    """The lane of a name; names that are not configured get LaneConfig's defaults."""

    def lane(name: str) -> Lane:
        known = config.lanes.get(name, _DEFAULT)
        cost = config.permits if known.cost == "all" else min(known.cost, config.permits)
        return Lane(name, cost, round(known.wait_s * 1000), round(known.max_run_s * 1000))

    return lane


_DEFAULT = LaneConfig()
