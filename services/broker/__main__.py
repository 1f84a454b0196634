"""Wiring of the broker: configuration → devices, journal → shell → server."""

from chassis import log, server
from chassis.main import Context, run_service
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from services.broker.config import BrokerConfig
from services.broker.device import Device
from services.broker.device_cpu import CpuDevice
from services.broker.device_nvml import NvmlDevice, card_count
from services.broker.device_simulated import SimulatedDevice
from services.broker.journal import Journal, JournalError
from services.broker.servicer import BrokerServicer
from services.broker.shell import Shell


async def devices_of(config: BrokerConfig) -> list[Device]:
    """The devices that the configuration means."""
    if config.device == "simulated" and config.capacity_mib is not None:
        return [SimulatedDevice(config.capacity_mib)]
    if config.device != "cpu":
        cards = await card_count(config.read_deadline_s)
        if config.device == "nvml":
            cards = max(1, cards)  # configured to be there: unreachable until it answers
        if cards:
            return [NvmlDevice(index, config.read_deadline_s) for index in range(cards)]
    return [CpuDevice(config.capacity_mib)]


async def start(context: Context[BrokerConfig]) -> None:
    """Serve until told to stop."""
    devices = await devices_of(context.own)
    shell = Shell(context.own, devices, Journal(context.house.state_dir))
    kept = shell.start()
    log.get().info("ledger open", devices=[device.name for device in devices], leases=kept)
    grpc_server = server.Server([server.service_name(broker_pb2, "BrokerService")])
    grpc_server.closing.push_async_callback(shell.close)
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(
        BrokerServicer(shell, context.own), grpc_server.grpc
    )
    await server.run(grpc_server, context.house.listen_of("broker"))


def main() -> None:
    """Run the service; a journal that cannot be used is said in one line."""
    try:
        run_service("broker", BrokerConfig, start)
    except JournalError as error:
        raise SystemExit(str(error)) from None


main()
