"""What the routes of the edge are wired to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.types import ASGIApp

from chassis import tracing
from chassis.admission import Admission
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Waits
from cohabit.broker.v1 import broker_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2_grpc
from edge.access import Access
from edge.admin import AdminRoutes
from edge.admin_calls import AdminCalls, services_of
from edge.body import MIB, Bodies
from edge.catalog import Catalog
from edge.config import EdgeConfig
from edge.cutouts.wiring import open_cutouts
from edge.described_more import RUNS_PATH
from edge.entrance import Door, Entrance
from edge.house import EdgeNow, House
from edge.jobs.wiring import open_jobs
from edge.keys.counting import Counting, OwnCounting
from edge.keys.gate import Checked, Gate
from edge.keys.watch import KeysFile, following
from edge.pictures.fetch import Fetch, rules_of
from edge.pictures.wiring import open_pictures
from edge.responses.in_flight import InFlight
from edge.responses.routes import Responses
from edge.responses.shelf import OwnShelf, Shelf
from edge.responses.store import store_of
from edge.roster import Roster
from edge.routes import VERSION, routes
from edge.shortcut import Shortcut
from edge.signals.wiring import open_signals
from edge.simulated import SERVICE, RunsEndpoint
from edge.standing import Standing
from edge.text_wiring import open_texts
from edge.tier import TIERS, TierRule
from edge.traced import Traced


@asynccontextmanager
async def open_app(
    config: EdgeConfig,
    scheduler_address: str,
    model_services: Mapping[str, str],
    broker_address: str,
    jobs_address: str = "",
    *,
    standing: Standing | None = None,
    shelf: Shelf | None = None,
    in_flight: InFlight | None = None,
    counting: Counting | None = None,
) -> AsyncIterator[ASGIApp]:
    """The edge's ASGI application, connected until the block ends.

    `model_services`: the gRPC targets of those there are, by name; `jobs_address`: that of the job
    service, empty where there is none. `standing` is told from outside; where there are several
    workers, so are the `shelf` that they share, what this one has `in_flight`, and the `counting`
    of what API keys do. Raises ConfigError when the access log cannot be written, or the file of
    keys cannot be used.
    """
    standing = standing or Standing()
    async with AsyncExitStack() as stack:
        addresses = {"broker": broker_address, "scheduler": scheduler_address, **model_services}
        addresses |= {"jobs": jobs_address} if jobs_address else {}
        signals = await stack.enter_async_context(
            open_signals(config, addresses, standing, VERSION)
        )
        keys = await _keys_of(config, stack)
        scheduler = scheduler_pb2_grpc.SchedulerServiceStub(
            await stack.enter_async_context(open_channel(scheduler_address))
        )
        broker = broker_pb2_grpc.BrokerServiceStub(
            await stack.enter_async_context(open_channel(broker_address))
        )
        catalog, entrance = Catalog(scheduler), entrance_of(config)
        roster, fetch = Roster(catalog.listed), Fetch(rules_of(config))
        stack.push_async_callback(fetch.close)
        responses = Responses(shelf or OwnShelf(store_of(config)), in_flight or InFlight())
        texts = await stack.enter_async_context(
            open_texts(config, scheduler, model_services, entrance, catalog, roster, responses)
        )
        pictures = await stack.enter_async_context(
            open_pictures(config, scheduler, model_services, entrance, catalog, roster, fetch)
        )
        cutouts = await stack.enter_async_context(
            open_cutouts(config, scheduler, model_services, entrance, catalog, roster, fetch)
        )
        jobs = await stack.enter_async_context(
            open_jobs(config, jobs_address, entrance, catalog, roster, fetch)
        )
        raw = {**texts, **pictures.endpoints, **cutouts, **jobs.endpoints}
        if SERVICE in model_services:
            raw[RUNS_PATH] = _runs(config, scheduler, entrance, roster, stack)
        edge_now, problems = EdgeNow(standing, signals.failures), keys.problems if keys else list
        house = House(
            catalog, broker, tuple(model_services), VERSION, jobs.ready, edge_now, problems
        )
        hosts = services_of(model_services)
        stack.push_async_callback(hosts.close)
        calls = AdminCalls(catalog, model_services, hosts, config.max_request_s)
        admin = AdminRoutes(house, calls, entrance.bodies)
        more = (responses, pictures, jobs, signals, admin)
        app = routes(raw, more, catalog, house, standing, keyed=keys is not None)
        accessed = Access(
            Gate(Shortcut(app, raw), _checked_by(keys, counting)),
            write_log=config.access_log,
            write=signals.write,
            failures=signals.failures,
        )
        yield Traced(accessed) if tracing.is_on() else accessed


def _runs(
    config: EdgeConfig,
    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
    entrance: Entrance,
    roster: Roster,
    stack: AsyncExitStack,
) -> RunsEndpoint:
    """Of simulated models, which only some houses have."""
    engines = Channels(config.max_idle_engines, simulated_pb2_grpc.SimulatedServiceStub)
    stack.push_async_callback(engines.close)
    waits = Waits(config.admit_answer_s, config.resume_s, config.max_request_s)
    return RunsEndpoint(Admission(scheduler, engines, waits), entrance, roster)


async def _keys_of(config: EdgeConfig, stack: AsyncExitStack) -> KeysFile | None:
    if config.keys_file is None:
        return None
    return await stack.enter_async_context(following(config.keys_file))


def _checked_by(keys: KeysFile | None, counting: Counting | None) -> Checked | None:
    if keys is None:
        return None
    return Checked(lambda: keys.keyring, counting or OwnCounting())


def entrance_of(config: EdgeConfig) -> Entrance:
    """The way in to all models."""
    return Entrance(
        door=Door(config.max_open_requests),
        bodies=Bodies(config.max_body_mib * MIB, config.max_bodies_mib * MIB, config.body_s),
        tiers=TierRule(TIERS[config.default_tier], TIERS[config.open_tier_ceiling]),
    )
