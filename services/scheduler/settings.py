"""The configuration in the core's words."""

from collections.abc import Callable, Collection
from functools import lru_cache

from chassis.config import ConfigError, Document
from services.scheduler.config import FairnessConfig, LaneConfig, ModelRuleConfig, SchedulerConfig
from services.scheduler.core.sets import Rules, SetError, parse_sets
from services.scheduler.core.settings import Fairness, ModelRule, ModelRules, Settings
from services.scheduler.core.values import Lane, Tier

_LANES = 1_024
_DEFAULT = LaneConfig()


def settings_of(config: SchedulerConfig, document: Document) -> Settings:
    """What the core is told. Raises ConfigError where a model or a set is named that is not."""
    rules, sets = rules_of(config, document)
    return Settings(
        permits=config.permits,
        lane_of=lane_table(config),
        queue_limit=config.queue_limit,
        queue_limits={Tier[name.upper()]: n for name, n in config.queue_limits.items()},
        promote_after_ms={Tier[n.upper()]: _ms(s) for n, s in config.promote_after_s.items()},
        use_within_ms=_ms(config.use_within_s),
        fairness=_fairness(config.fairness),
        rules=rules,
        sets=sets,
        max_swap_delay_ms=_ms(config.max_swap_delay_s),
        linger_ms=_ms(config.linger_s),
        drain_ms=_ms(config.drain_s),
        background_quiet_ms=_ms(config.background_quiet_s),
        memory_back_ms=_ms(config.memory_back_s),
        max_hold_ms=_ms(config.max_hold_s),
    )


def rules_of(config: SchedulerConfig, document: Document) -> tuple[ModelRules, Rules | None]:
    """What `residency` says of models and of sets, both of which may change while the house runs.

    Raises ConfigError where a model or a set is named that is not.
    """
    written, models = config.residency.models, document.model_names()
    for key in written.keys() - models:
        raise _blamed(document, ("models", key), "expected a configured model")
    rules = {key: _rule(rule) for key, rule in written.items()}
    return rules, _sets(config, document, models)


def lane_table(config: SchedulerConfig) -> Callable[[str], Lane]:
    """The lane of a name; names that are not configured get LaneConfig's defaults."""

    @lru_cache(_LANES)
    def lane(name: str) -> Lane:
        known = config.lanes.get(name, _DEFAULT)
        cost = config.permits if known.cost == "all" else min(known.cost, config.permits)
        background = known.tier == "background"
        return Lane(name, cost, _ms(known.wait_s), _ms(known.max_run_s), background)

    return lane


def _sets(config: SchedulerConfig, document: Document, models: Collection[str]) -> Rules | None:
    sets = config.residency.sets
    try:
        return parse_sets(sets, models) if sets else None
    except SetError as error:
        said = f"column {error.column}: {error.message}"
        raise _blamed(document, ("sets", error.name), said) from None


def _blamed(document: Document, at: tuple[str, str], said: str) -> ConfigError:
    where = document.where(("scheduler", "residency", *at))
    return ConfigError(f"{where}: scheduler.residency.{'.'.join(at)}: {said}")


def _fairness(config: FairnessConfig) -> Fairness:
    return Fairness(
        default_weight=config.default_weight,
        weights=config.weights,
        pending_per_key=config.pending_per_key,
        pending_per_model=config.pending_per_model,
        soft_inflight=config.soft_inflight,
        idle_ttl_ms=_ms(config.idle_ttl_s),
    )


def _rule(config: ModelRuleConfig) -> ModelRule:
    return ModelRule(config.eviction_cost, config.pinned, _ms(config.idle_ttl_s))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
