"""What the routes of the edge are wired to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from starlette.types import ASGIApp

from chassis import tracing
from chassis.admission import Admission
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Waits
from cohabit.broker.v1 import broker_pb2_grpc
from cohabit.llm.v1 import llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2_grpc
from edge import (
    chat,
    completions,
    embeddings,
    legacy,
    rerank,
    tokenize,
)
from edge.access import Access
from edge.admin import AdminRoutes
from edge.admin_calls import AdminCalls, services_of
from edge.answering import AnswerEndpoint, Answering
from edge.anthropic import messages
from edge.anthropic.count import CountEndpoint
from edge.body import MIB, Bodies
from edge.catalog import Catalog
from edge.config import EdgeConfig
from edge.cutouts.wiring import open_cutouts
from edge.described_more import RUNS_PATH
from edge.described_text import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    COUNT_PATH,
    MESSAGES_PATH,
    RESPONSES_PATH,
)
from edge.entrance import Door, Entrance
from edge.house import EdgeNow, House
from edge.jobs.wiring import open_jobs
from edge.keys.counting import Counting, OwnCounting
from edge.keys.gate import Checked, Gate
from edge.keys.watch import KeysFile, following
from edge.measure import Measure
from edge.pictures.fetch import Fetch, rules_of
from edge.pictures.wiring import open_pictures
from edge.responses.endpoint import ResponsesEndpoint
from edge.responses.in_flight import InFlight
from edge.responses.routes import Responses
from edge.responses.shelf import OwnShelf, Shelf
from edge.responses.store import store_of
from edge.roster import Roster
from edge.routes import VERSION, routes
from edge.shortcut import Shortcut
from edge.signals.wiring import open_signals
from edge.simulated import SERVICE, RunsEndpoint
from edge.single import Parse, SingleEndpoint
from edge.sse import Patience
from edge.standing import Standing
from edge.tier import TIERS, TierRule
from edge.tokenize import TokensEndpoint
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
    of what API keys do. Raises ConfigError when the access log cannot
    be written or the file of keys not be used.
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
        catalog, measure = Catalog(scheduler), Measure(model_services)
        answerers = Channels(config.max_idle_engines, llm_pb2_grpc.LanguageModelServiceStub)
        runners = Channels(config.max_idle_engines, simulated_pb2_grpc.SimulatedServiceStub)
        for closing in (measure.close, answerers.close, runners.close):
            stack.push_async_callback(closing)
        waits = Waits(config.admit_answer_s, config.resume_s, config.max_request_s)
        entrance, roster = entrance_of(config), Roster(catalog.listed)
        answering = Answering(
            admission=Admission(scheduler, answerers, waits),
            entrance=entrance,
            roster=roster,
            measure=measure,
            patience=Patience(config.keepalive_s, config.write_stall_s),
        )
        runs = RunsEndpoint(Admission(scheduler, runners, waits), entrance, roster)
        responses = Responses(shelf or OwnShelf(store_of(config)), in_flight or InFlight())
        raw: dict[str, ASGIApp] = {
            CHAT_PATH: AnswerEndpoint(answering, chat.ask),
            COMPLETIONS_PATH: AnswerEndpoint(answering, completions.ask),
            RESPONSES_PATH: ResponsesEndpoint(answering, responses.shelf, responses.in_flight),
            MESSAGES_PATH: AnswerEndpoint(answering, messages.ask),
            COUNT_PATH: CountEndpoint(entrance, roster, catalog, measure),
            **legacy.endpoints(config.legacy_models, answering),
        }
        if SERVICE in model_services:
            raw[RUNS_PATH] = runs
        hosts = services_of(model_services)
        stack.push_async_callback(hosts.close)
        calls = AdminCalls(catalog, model_services, hosts, config.max_request_s)
        single = partial(
            SingleEndpoint, answering.admission, entrance, roster, config.write_stall_s
        )
        raw |= {path: single(parse) for path, parse in _single_answers(config).items()}
        services = Channels(len(model_services), llm_pb2_grpc.LanguageModelServiceStub)
        stack.push_async_callback(services.close)
        tokens = partial(TokensEndpoint, entrance, catalog.listed, model_services, services)
        raw[tokenize.PATH] = tokens(tokenize.tokenize)
        raw[tokenize.BACK_PATH] = tokens(tokenize.detokenize)
        fetch = Fetch(rules_of(config))
        stack.push_async_callback(fetch.close)
        pictures = await stack.enter_async_context(
            open_pictures(config, scheduler, model_services, entrance, catalog, roster, fetch)
        )
        cutouts = await stack.enter_async_context(
            open_cutouts(config, scheduler, model_services, entrance, catalog, roster, fetch)
        )
        jobs = await stack.enter_async_context(
            open_jobs(config, jobs_address, entrance, catalog, roster, fetch)
        )
        raw |= {**pictures.endpoints, **cutouts, **jobs.endpoints}
        edge_now, problems = EdgeNow(standing, signals.failures), keys.problems if keys else list
        house = House(
            catalog, broker, tuple(model_services), VERSION, jobs.ready, edge_now, problems
        )
        admin = AdminRoutes(house, calls, entrance.bodies)
        app = routes(
            *(raw, catalog, responses, house, admin, pictures, jobs, signals, standing),
            keyed=keys is not None,
        )
        accessed = Access(
            Gate(Shortcut(app, raw), _checked_by(keys, counting)),
            write_log=config.access_log,
            write=signals.write,
            failures=signals.failures,
        )
        yield Traced(accessed) if tracing.is_on() else accessed


async def _keys_of(config: EdgeConfig, stack: AsyncExitStack) -> KeysFile | None:
    if config.keys_file is None:
        return None
    return await stack.enter_async_context(following(config.keys_file))


def _checked_by(keys: KeysFile | None, counting: Counting | None) -> Checked | None:
    if keys is None:
        return None
    return Checked(lambda: keys.keyring, counting or OwnCounting())


def _single_answers(config: EdgeConfig) -> dict[str, Parse]:
    """By path: the dialects of requests that an engine answers once."""
    parsers: dict[str, Parse] = {embeddings.PATH: embeddings.ask}
    parsers |= dict.fromkeys(rerank.PATHS, rerank.ask)
    if (model := config.default_embedding_model) is not None:
        parsers[embeddings.FEATURES_PATH] = embeddings.feature_extraction(model)
    return parsers


def entrance_of(config: EdgeConfig) -> Entrance:
    """The way in to all models."""
    return Entrance(
        door=Door(config.max_open_requests),
        bodies=Bodies(config.max_body_mib * MIB, config.max_bodies_mib * MIB, config.body_s),
        tiers=TierRule(TIERS[config.default_tier], TIERS[config.open_tier_ceiling]),
    )
