"""What a transcript says of settings and of models, read into the core's own words."""

from collections.abc import Mapping

from services.scheduler.core.sets import Rules, parse_sets
from services.scheduler.core.settings import Fairness, ModelRule, Settings
from services.scheduler.core.values import InstanceFacts, Lane, ModelFacts, State, Tier
from tests.sim.transcript import ms, options

_COSTS = {"pair": 2, "image": 3, "all": 4}


def lane_of(name: str) -> Lane:
    """Lanes by name: chat costs 1 permit, pair 2, image 3, all everything, batch 1 and always in
    the background. All wait 60 s at most, and run 600 s."""
    return Lane(name, _COSTS.get(name, 1), 60_000, 600_000, background=name == "batch")


def settings_of(words: tuple[str, ...]) -> Settings:
    """The settings of `given`, in small: four permits, eight may wait in each tier."""
    given = options(words, *_SETTINGS)

    def named(prefix: str) -> dict[str, str]:
        return {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}

    return Settings(
        4,
        lane_of,
        queue_limit=int(given.get("limit", 8)),
        queue_limits={Tier[k.upper()]: int(v) for k, v in named("limit.").items()},
        promote_after_ms={Tier[k.upper()]: ms(v) for k, v in named("promote.").items()},
        fairness=Fairness(
            weights={k: float(v) for k, v in named("weight.").items()},
            soft_inflight=int(given.get("soft", 0)),
            pending_per_key=int(given.get("pending.key", 1_000)),
            pending_per_model=int(given.get("pending.model", 1_000)),
            idle_ttl_ms=ms(given.get("forget", "300s")),
        ),
        rules=_rules(named("cost."), named("ttl."), named("pinned.")),
        sets=_sets(named("set.")),
        max_swap_delay_ms=ms(given.get("swap", "15s")),
        linger_ms=ms(given.get("linger", "0s")),
        drain_ms=ms(given.get("drain", "60s")),
        background_quiet_ms=ms(given.get("quiet", "60s")),
        memory_back_ms=ms(given.get("back", "30s")),
        max_hold_ms=ms(given.get("hold", "600s")),
    )


_SETTINGS = (
    *("limit", "limit.", "promote.", "weight.", "soft", "pending.key", "pending.model", "forget"),
    *("cost.", "ttl.", "pinned.", "set.", "swap", "linger", "drain", "quiet", "back", "hold"),
)


def _rules(
    costs: Mapping[str, str], ttls: Mapping[str, str], pinned: Mapping[str, str]
) -> dict[str, ModelRule]:
    return {
        key: ModelRule(float(costs.get(key, 1)), key in pinned, ms(ttls.get(key, "0s")))
        for key in (*costs, *ttls, *pinned)
    }


def _sets(sets: Mapping[str, str]) -> Rules | None:
    if not sets:
        return None
    words = {w for text in sets.values() for w in "".join(map(_or_space, text)).split()}
    return parse_sets(sets, words - sets.keys())


def _or_space(character: str) -> str:
    return " " if character in "&|()+" else character


class Told:
    """What model services say. What was said of a model once goes on to be so."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, str]] = {}

    def facts(self, now_ms: int, key: str, state: State, words: tuple[str, ...]) -> ModelFacts:
        """A report, of what is said now and was said before."""
        new = options(words, *_LASTING, *_PASSING)
        said = self._said.setdefault(key, {})
        said.update({name: value for name, value in new.items() if name in _LASTING})
        return ModelFacts(
            key=key,
            lane=said.get("lane", "chat"),
            state=state,
            resident_mib=int(said.get("mib", 100)),
            peak_mib=int(said.get("peak", 0)),
            family=said.get("family", ""),
            context_tokens=int(said.get("context", 0)),
            max_instances=int(said.get("most", 1)),
            instances=tuple(_instances(key, state, said | new)),
            retry_at_ms=now_ms + ms(new.get("retry", "0s")),
            failure="it broke" if state is State.FAILED else "",
            removed="removed" in new,
        )


_LASTING = ("lane", "mib", "peak", "family", "context", "most", "places", "takes", "extra")
_PASSING = ("retry", "progress", "ready", "loading", "removed")


def _instances(key: str, state: State, said: Mapping[str, str]) -> list[InstanceFacts]:
    if state in (State.COLD, State.FAILED):
        return []
    states = dict.fromkeys(said["ready"].split(","), State.READY) if "ready" in said else {}
    if "loading" in said:
        states |= dict.fromkeys(said["loading"].split(","), State.LOADING)
    return [
        InstanceFacts(
            f"{key}-{number}",
            its,
            f"unix:{key}-{number}",
            int(said.get("places", 4)),
            float(said.get("progress", 0)),
            ms(said.get("takes", "0s")) if its is State.READY else 0,
            int(said.get("extra", 0)),
        )
        for number, its in (states or {"1": state}).items()
    ]
