"""A declared capacity without a card behind it, for running the whole house without one.

Use is what holders report: engines of kind `simulated` take memory up and give it back with the
timings their profile declares.
"""

from services.broker.device import DeviceKind, DeviceReading


class SimulatedDevice:
    """Always reachable, always as large as declared."""

    name = "sim0"
    kind = DeviceKind.SIMULATED
    description = "Simulated device"

    def __init__(self, capacity_mib: int) -> None:
        self._reading = DeviceReading(capacity_mib, free_mib=None)

    async def read(self, now_ms: int) -> DeviceReading:  # noqa: ARG002 (nothing changes)
        """The declared capacity."""
        return self._reading
