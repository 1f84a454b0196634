"""Wiring of the broker: configuration → devices, journal → shell, warmer → server."""

from pathlib import Path

from chassis import log, server
from chassis.clock import steady_ms
from chassis.main import Context, run_service
from chassis.simulated_card import CardError, SimulatedCard
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from services.broker import metrics
from services.broker.config import BrokerConfig
from services.broker.device import Device
from services.broker.device_cpu import CpuDevice
from services.broker.device_nvml import NvmlDevice, cards
from services.broker.device_simulated import SimulatedDevice
from services.broker.driver_nvml import Card
from services.broker.journal import Journal, JournalError
from services.broker.servicer import BrokerServicer
from services.broker.shell import Shell
from services.broker.warming import Warmer


async def devices_of(config: BrokerConfig, run_dir: Path) -> list[Device]:
    """The devices that the configuration means. Raises CardError."""
    if config.device == "simulated" and config.capacity_mib is not None:
        card = SimulatedCard(run_dir / "sim0.card")
        visits = [foreign.visit for foreign in config.foreign]
        return [SimulatedDevice(card, config.capacity_mib, visits, steady_ms())]
    if config.device != "cpu":
        found = await cards(config.read_deadline_s)
        if config.device == "nvml":
            found = found or [Card(0)]  # configured to be there: unreachable until it answers
        if found:
            return [NvmlDevice(card, config.read_deadline_s) for card in found]
    return [CpuDevice(config.capacity_mib)]


async def start(context: Context[BrokerConfig]) -> None:
    """Serve until told to stop."""
    journal = Journal(context.house.state_dir)  # first: its lock is what makes this the broker
    devices = await devices_of(context.own, context.house.run_dir)
    shell = Shell(context.own, devices, journal)
    kept = shell.start()
    log.get().info("ledger open", devices=[device.name for device in devices], leases=kept)
    grpc_server = server.Server([server.service_name(broker_pb2, "BrokerService")])
    warmer = Warmer(context.house.models_dir, context.own.warm_floor_of)
    grpc_server.leaving += [shell.watchers.close, warmer.close]
    grpc_server.closing.push_async_callback(shell.close)
    grpc_server.closing.callback(metrics.follow(shell.look))
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(
        BrokerServicer(shell, warmer, context.own), grpc_server.grpc
    )
    await server.run(grpc_server, context.house.listen_of("broker"))


def main() -> None:
    """Run the service; a journal or a card that cannot be used is said in one line."""
    try:
        run_service("broker", BrokerConfig, start)
    except (JournalError, CardError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
