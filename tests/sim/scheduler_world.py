"""The world of the scheduler's transcripts: its commands, which are documented here alone.

The core is real. The transcript is everything around it: callers, engines, model services, the
broker and the clock. `NAME` is a request's and then its permit's, `KEY` a model's. Decisions are
put into words by `scheduler_words`.
"""

from collections.abc import Sequence

from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.values import AskTransient, Effect, Request, State, Tier
from tests.sim.scheduler_given import Told, settings_of
from tests.sim.scheduler_words import describe
from tests.sim.transcript import Commands, ms, options


class SchedulerWorld(Commands):
    """A core with four permits, and all that it deals with."""

    def __init__(self) -> None:
        self._start(())

    def _start(self, words: tuple[str, ...]) -> None:
        self.core = SchedulerCore(settings_of(words))
        self._told = Told()
        self._peaks: dict[str, int] = {}

    def _say(self, *batches: Sequence[Effect]) -> list[str]:
        effects = [effect for batch in batches for effect in batch]
        for effect in effects:
            if isinstance(effect, AskTransient):
                self._peaks[effect.permit_id] = effect.preferred_mib
        return [describe(effect) for effect in effects]

    # -- the start, and time -----------------------------------------------------------------

    def do_given(self, *words: str) -> list[str]:
        """given NAME=VALUE...: settings, before anything else.

        Queues: limit=8 limit.TIER=2 promote.TIER=10s.
        Fairness: weight.KEY=2 soft=1 pending.key=3 pending.model=3 forget=300s.
        Residency: cost.MODEL=2 ttl.MODEL=60s pinned.MODEL "set.NAME=a & (b | c)" swap=15s
        linger=0s drain=60s quiet=60s back=30s. Lanes: hold=600s.
        """
        self._start(words)
        return []

    def do_start(self) -> list[str]:
        """start: every model service has reported; granting begins."""
        return self._say(self.core.catalogue_complete(self.now))

    def do_silence(self) -> list[str]:
        """silence: some model service has not reported in time; granting begins all the same."""
        return self._say(self.core.reconcile(self.now))

    def do_wait(self, duration: str) -> list[str]:
        """wait 1500ms: time passes; every alarm on the way rings at its time."""
        until = self.now + ms(duration)
        said: list[str] = []
        while (due := self.core.next_alarm_ms) is not None and due <= until:
            self.now = max(self.now, due)
            said += self._say(self.core.tick(self.now))
        self.now = until
        return said

    # -- callers -----------------------------------------------------------------------------

    def do_paid(self, name: str, wants: str, model: str, *words: str) -> list[str]:
        """paid|sub|free|background NAME wants KEY [lane=LANE] [key=CLIENT] [under=PERMIT]
        [peak=MIB] [least=MIB] [tokens=N] [since=TIME] [try] [load]: a request arrives.

        `since` is when it first arrived, `load` wants the model resident and runs nothing.
        """
        return self._arrives(Tier.PAID, name, wants, model, words)

    def do_sub(self, name: str, wants: str, model: str, *words: str) -> list[str]:
        """See `paid`."""
        return self._arrives(Tier.SUB, name, wants, model, words)

    def do_free(self, name: str, wants: str, model: str, *words: str) -> list[str]:
        """See `paid`."""
        return self._arrives(Tier.FREE, name, wants, model, words)

    def do_background(self, name: str, wants: str, model: str, *words: str) -> list[str]:
        """See `paid`."""
        return self._arrives(Tier.BACKGROUND, name, wants, model, words)

    def _arrives(
        self, tier: Tier, name: str, wants: str, model: str, words: tuple[str, ...]
    ) -> list[str]:
        if wants != "wants":
            raise ValueError(f'it goes "NAME wants KEY", not "{name} {wants} {model}"')
        given = options(
            words, "lane", "key", "under", "peak", "least", "tokens", "since", "try", "load"
        )
        request = Request(
            permit_id=name,
            model=model,
            tier=tier,
            arrived_ms=ms(given["since"]) if "since" in given else self.now,
            lane=given.get("lane", ""),
            key=given.get("key", ""),
            parent=given.get("under", ""),
            preferred_mib=int(given.get("peak", 0)),
            minimum_mib=int(given.get("least", 0)),
            tokens=int(given.get("tokens", 0)),
            try_acquire="try" in given,
            load_only="load" in given,
        )
        return self._say(self.core.arrive(self.now, request))

    def do_gone(self, name: str) -> list[str]:
        """gone NAME: the caller closed its stream."""
        return self._say(self.core.leave(self.now, name))

    def do_done(self, *names: str) -> list[str]:
        """done NAMES: the usual end: each engine reports it over, then the caller closes."""
        said: list[str] = []
        for name in names:
            said += self.do_started(name) + self.do_over(name) + self.do_gone(name)
        return said

    def do_hold(self, lane: str, holder: str, duration: str) -> list[str]:
        """hold LANE HOLDER 10s: a coordinator wants the lane closed for so long."""
        return self._say(self.core.hold(self.now, lane, holder, ms(duration)))

    def do_release(self, lane: str, holder: str) -> list[str]:
        """release LANE HOLDER: it wants that no more."""
        return self._say(self.core.release_hold(self.now, lane, holder))

    def do_unload(self, key: str) -> list[str]:
        """unload KEY: somebody asks for the model to go."""
        running = self.core.unload_asked(key, force=False)
        return [f"{key} stays: {running} running" if running else f"{key} may go"]

    def do_plan(self, key: str, tier: str, *words: str) -> list[str]:
        """plan KEY TIER room=MIB: what would leave for the model, in words, and why."""
        room = int(options(words, "room")["room"])
        plan = self.core.plan(self.now, key, Tier[tier.upper()], room)
        return plan.explanation.splitlines()

    def do_count(self) -> list[str]:
        """count: how many permits are in use, and who waits in which order."""
        waiting = [queued.permit_id for queued in self.core.queue_positions()]  # type: ignore[union-attr]
        return [f"{self.core.in_use} permits in use; waiting: {' '.join(waiting) or 'nobody'}"]

    # -- engines and model services ----------------------------------------------------------

    def do_started(self, *names: str) -> list[str]:
        """started NAMES: their engines took the requests in."""
        if unknown := [name for name in names if name not in self.core.permits]:
            raise ValueError(f"{' '.join(unknown)} has not been granted")
        permits = [self.core.permits[name] for name in names]
        return self._say(
            *(self.core.permit_started(self.now, p.name, p.model, p.instance_id) for p in permits)
        )

    def do_found(self, name: str, model: str) -> list[str]:
        """found NAME KEY: an engine reports a request, known here or not, that runs on it."""
        return self._say(self.core.permit_started(self.now, name, model, f"{model}-1"))

    def do_over(self, name: str) -> list[str]:
        """over NAME: the engine says that nothing runs under it, nor will."""
        return self._say(self.core.permit_over(self.now, name))

    def do_runs(self, name: str) -> list[str]:
        """runs NAME: the engine was asked whether it is in use, and it is."""
        return self._say(self.core.permit_runs(name))

    def do_model(self, key: str, state: str, *words: str) -> list[str]:
        """model KEY STATE [lane=chat] [mib=100] [peak=0] [places=4] [takes=TIME] [family=F]
        [context=TOKENS] [most=INSTANCES] [ready=1,2] [loading=3] [progress=0.5] [retry=TIME]
        [removed]: its service reports it.

        `lane` to `most` hold until they are said otherwise; `takes` is how long its load took.
        `ready` and `loading` are the instances of several. `removed`: it is configured no more, and
        finishes what runs.
        """
        facts = self._told.facts(self.now, key, State[state], words)
        return self._say(self.core.model_changed(self.now, facts))

    def do_snapshot(self, *words: str) -> list[str]:
        """snapshot KEY:STATE... [NAME@KEY...]: a service reports all its models, and all that
        runs there."""
        models = dict(word.split(":") for word in words if ":" in word)
        found = dict(word.split("@") for word in words if "@" in word)
        running = {name: (key, f"{key}-1") for name, key in found.items()}
        facts = [self._told.facts(self.now, key, State[s], ()) for key, s in models.items()]
        known = set(self.core.models)
        return self._say(self.core.snapshot(self.now, facts, running, known))

    def do_ruled(self, *words: str) -> list[str]:
        """ruled NAME=VALUE...: the rules about models are these from now on: cost.MODEL ttl.MODEL
        pinned.MODEL set.NAME, as for `given`."""
        now = settings_of(words)
        return self._say(self.core.rules_changed(self.now, now.rules, now.sets))

    def do_lost(self, *keys: str) -> list[str]:
        """lost KEYS: their service does not answer."""
        return self._say(self.core.worker_lost(self.now, keys))

    def do_removed(self, key: str) -> list[str]:
        """removed KEY: it is not configured any more, and nothing is left of it."""
        return self._say(self.core.model_removed(self.now, key))

    # -- memory ------------------------------------------------------------------------------

    def do_lease(self, key: str, answer: str, *words: str) -> list[str]:
        """lease KEY granted|denied|never|unanswered [room=0]: the broker answers for a model.

        `room` is the headroom that it names with a denial.
        """
        room = int(options(words, "room").get("room", 0))
        match answer:
            case "granted":
                return self._say(self.core.lease_granted(self.now, key, f"lease-{key}"))
            case "denied" | "never":
                never = answer == "never"
                return self._say(self.core.lease_denied(self.now, key, never, "too big", room))
            case "unanswered":
                return self._say(self.core.lease_unanswered(self.now, key))
        raise ValueError(f'the broker does not answer "{answer}"')

    def do_peak(self, name: str, answer: str, *words: str) -> list[str]:
        """peak NAME granted|denied|never|unanswered [room=0] [mib=ASKED]: the broker answers for
        the memory of one request."""
        given = options(words, "room", "mib")
        room = int(given.get("room", 0))
        match answer:
            case "granted":
                mib = int(given["mib"]) if "mib" in given else self._peaks[name]
                granted = self.core.transient_granted(self.now, name, f"peak-{name}", mib)
                return self._say(granted)
            case "denied" | "never":
                never = answer == "never"
                return self._say(self.core.transient_denied(self.now, name, never, "too big", room))
            case "unanswered":
                return self._say(self.core.transient_unanswered(self.now, name))
        raise ValueError(f'the broker does not answer "{answer}"')

    def do_loaded(self, key: str) -> list[str]:
        """loaded KEY: the load call has ended, well or through nobody's fault."""
        return self._say(self.core.load_ended(self.now, key, None))

    def do_gave_up(self, key: str) -> list[str]:
        """gave_up KEY: the load call has ended with a failure."""
        return self._say(self.core.load_ended(self.now, key, "it broke", 2_000))

    def do_unloaded(self, key: str) -> list[str]:
        """unloaded KEY: the unload call has ended; the model's reports say how."""
        return self._say(self.core.unload_ended(self.now, key))

    def do_comes(self, key: str) -> list[str]:
        """comes KEY: its lease is granted, it loads in no time, it serves."""
        said = self.do_lease(key, "granted")
        return (
            said + self.do_model(key, "LOADING") + self.do_model(key, "READY") + self.do_loaded(key)
        )

    def do_goes(self, key: str) -> list[str]:
        """goes KEY: it drains, it is cold, its unload has ended."""
        said = self.do_model(key, "DRAINING")
        return said + self.do_model(key, "COLD") + self.do_unloaded(key)
