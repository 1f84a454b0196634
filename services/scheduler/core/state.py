"""What the scheduler's core remembers of a permit and of a model."""

from dataclasses import dataclass

from services.scheduler.core.values import ModelFacts, Request, State


@dataclass(slots=True)
class Permit:
    """A granted permit."""

    request: Request
    cost: int
    lane: str
    model: str
    address: str
    granted_ms: int
    seen: bool = False
    """Its engine has taken the request in."""
    engine_over: bool = False
    stream_closed: bool = False
    adopted: bool = False
    """Learnt from an engine after a restart: it has no stream here."""


@dataclass(slots=True)
class Model:
    """A model, as its service reports it and as we use it."""

    facts: ModelFacts
    running: int = 0
    """Permits out on it."""
    last_used_ms: int = 0
    asking: bool = False
    """A lease is being asked for."""
    starting: bool = False
    """StartLoad was performed and the service has not reported LOADING yet."""
    leaving: bool = False
    """It is being unloaded, and the service has not reported its end yet."""
    leaving_for: str = ""
    """The model that its memory is wanted for; empty: somebody asked for the unload."""
    ask_again_ms: int = 0
    """No lease is asked for before this."""
    reachable: bool = True
    """Its service answers."""

    @property
    def serves(self) -> bool:
        """Takes requests, places aside."""
        return self.facts.state is State.READY and self.reachable and not self.leaving

    def loadable(self, now_ms: int) -> bool:
        """May be loaded: COLD, or FAILED and done with its cooling."""
        state = self.facts.state
        cooled = state is State.FAILED and self.facts.retry_at_ms <= now_ms
        return self.reachable and (state is State.COLD or cooled)

    def cooling_ms(self, now_ms: int) -> int:
        """How long a failed model may not be tried; 0 for any other."""
        return max(0, self.facts.retry_at_ms - now_ms) if self.facts.state is State.FAILED else 0
