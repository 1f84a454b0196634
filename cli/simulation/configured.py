"""What a cohabit.yaml says, in the words of a replay.

The sections broker, scheduler and simulated are read as their services read them. The device has
to be simulated: nothing else declares how its models behave. `time_scale` is left out: it makes
pretended work short for those who wait for it, and here nobody does.
"""

from pathlib import Path

from chassis import config
from cli.simulation.setup import CardSpec, Profile, Setup, Tenant
from services.broker.config import BrokerConfig
from services.scheduler.config import SchedulerConfig
from services.scheduler.settings import settings_of
from services.simulated.config import ModelConfig, SimulatedConfig
from services.simulated.profile import LANGUAGE


def setup_of(path: Path | None) -> Setup:
    """Read the configuration. Raises ConfigError."""
    document = config.load(path)
    simulated = document.section("simulated", SimulatedConfig)
    if not simulated.models:
        raise config.ConfigError(
            f"{document.path}: simulated.models: expected models with their profiles, which a "
            "simulation replays; examples/one-5090.yaml has some"
        )
    return Setup(
        profiles={key: _profile(key, model) for key, model in simulated.models.items()},
        card=_card(document, document.section("broker", BrokerConfig)),
        settings=settings_of(document.section("scheduler", SchedulerConfig), document),
    )


def _profile(key: str, model: ModelConfig) -> Profile:
    talks = model.kind == LANGUAGE
    return Profile(
        key=key,
        lane=model.lane,
        family=model.family,
        resident_mib=model.resident_mib,
        peak_mib=model.peak_mib,
        places=model.places,
        max_instances=model.max_instances,
        context_tokens=model.context_tokens,
        load_ms=round(model.load_s * 1000),
        unload_ms=round(model.unload_s * 1000),
        work_ms=round(model.work_s * 1000),
        tokens_per_s=model.tokens_per_s if talks else 0.0,
        prefill_tokens_per_s=model.prefill_tokens_per_s if talks else 0.0,
    )


def _card(document: config.Document, section: BrokerConfig) -> CardSpec:
    total_mib = section.capacity_mib
    if section.device != "simulated" or total_mib is None:
        raise config.ConfigError(
            f"{document.where(('broker', 'device'))}: broker.device: expected simulated, with "
            f"capacity_mib, for a simulation; got {section.device}"
        )
    return CardSpec(
        total_mib=total_mib,
        floors=section.floors_of(total_mib, card=False),
        reserve_mib=section.reserve_of(total_mib, host=False),
        tenants=tenants_of(section),
        max_leases=section.max_leases,
    )


def tenants_of(section: BrokerConfig) -> tuple[Tenant, ...]:
    """What foreign tenants want together, from when."""
    visits = [entry.visit for entry in section.foreign]
    ends = (visit.until_ms for visit in visits if visit.until_ms is not None)
    turns = sorted({visit.from_ms for visit in visits} | set(ends))
    return tuple(
        Tenant(turn, sum(visit.mib for visit in visits if visit.lasts_at(turn))) for turn in turns
    )
