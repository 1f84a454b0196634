"""The models of a service as the configuration lists them, followed while the service runs."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from chassis.config import Document
from chassis.sections import FOLLOWED
from hosting.config import HostingSection
from hosting.host import ModelHost
from hosting.values import Source

S = TypeVar("S", bound=HostingSection)


class Listing(Generic[S]):
    """A section whose models come and go; all else of it stays as it was at the start."""

    def __init__(
        self, service: str, section: S, sources_of: Callable[[S], Mapping[str, Source]]
    ) -> None:
        self._followed = FOLLOWED[service]
        self._sources_of = sources_of
        self.section = section
        """As it applies now."""

    def sources(self) -> Mapping[str, Source]:
        """What describes each of its models, by key."""
        return self._sources_of(self.section)

    async def take(self, host: ModelHost, written: S, _document: Document) -> None:
        """Have `host` hold the models that `written` lists."""
        known = self.section.models
        followed = {name: getattr(written, name) for name in self._followed}
        self.section = self.section.model_copy(update=followed)
        wanted = self.section.models
        sources = self.sources()
        anew = {key: sources[key] for key in wanted if known.get(key) != wanted[key]}
        await host.relist(wanted.keys(), anew)
