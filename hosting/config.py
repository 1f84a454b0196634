"""The keys that every section of models has."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from chassis.config import Section


class HostingSection(Section):
    """Base of a section whose models live in engine processes."""

    models: Mapping[str, Section] = {}
    """By the name clients ask for; each service has a type for them."""
    engine_host: str = "127.0.0.1"
    """Over TCP: the address engines bind and are dialled at; `auto`: the one that this host has
    towards the scheduler."""
    engine_ports: tuple[int, int] | None = Field(default=None, strict=False)
    """Over TCP: first and last port engines may take. Default: Unix sockets in run_dir."""
    load_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """A load that takes longer has failed."""
    removal_drain_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """What runs on a model that is configured no more may take this long before it is ended."""
