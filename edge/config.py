"""The `edge` section of the configuration: where it listens, and the bounds it keeps."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from chassis.config import LoosePath, Section
from edge.loopback import is_loopback

TierName = Literal["background", "free", "sub", "paid"]
LegacyRoute = Literal["generate", "generate_large", "autocomplete", "summarization", "engines"]

_Seconds = Annotated[float, Field(gt=0, strict=False)]
_Name = Annotated[str, Field(min_length=1, max_length=256)]


class EdgeConfig(Section):
    """How the edge listens and what it bounds."""

    keys_file: LoosePath | None = None
    """The API keys that are taken, as hashes; none: open mode, and everybody is served."""
    listen: str = "127.0.0.1:8080"
    """host:port; without keys, which tell callers apart, a loopback address."""
    default_tier: TierName = "free"
    """Tier of a request that names none."""
    open_tier_ceiling: TierName = "paid"
    """The highest tier a caller without a key gets; a higher wish is lowered to it."""
    keepalive_s: _Seconds = 10.0
    """A silent stream gets an SSE comment this often."""
    resume_s: _Seconds = 10.0
    """How long a waiting call outlives the scheduler's absence."""
    admit_answer_s: _Seconds = 10.0
    """The scheduler says `queued`, `loading` or `granted` within this time, or is taken as gone."""
    max_request_s: _Seconds = 3600.0
    """Deadline of a request's gRPC calls, from first to last byte."""
    body_s: _Seconds = 60.0
    """A request's body arrives within this time."""
    write_stall_s: _Seconds = 30.0
    """A stream whose client takes nothing for this long is ended."""
    workers: int = Field(1, ge=1, le=64)
    """Processes that serve; more than one where one core is not enough."""
    linger_s: Annotated[float, Field(ge=0, le=3600, strict=False)] = 0.0
    """When told to stop, new connections are taken for so long, while /readyz says 503 already."""
    drain_s: _Seconds = 4.0
    """Time running answers get when the process is told to stop; `cohabit up` gives it 5 s."""
    max_body_mib: int = Field(16, ge=1, le=90)
    """Largest body of one request; text alone needs no more, and decoding holds up the others."""
    max_bodies_mib: int = Field(512, ge=1)
    """Bodies held in memory at once, over all requests; each worker has an equal part."""
    max_open_requests: int = Field(10_000, ge=1)
    """Requests for a model in progress at once; each worker has an equal part."""
    max_idle_engines: int = Field(64, ge=1)
    """Connections kept to engines that serve nothing at the moment."""
    default_embedding_model: Annotated[str, Field(min_length=1)] | None = None
    """What /api/v1/feature-extraction asks when the request names no model; none: no such route."""
    stored_responses: int = Field(1024, ge=1)
    """Responses kept for `previous_response_id`; the least recently used go first."""
    stored_responses_mib: int = Field(64, ge=1)
    """What they take in memory, all together."""
    stored_response_ttl_s: _Seconds = 86_400.0
    """A response that nobody asked for within this time is kept no longer."""
    legacy_models: dict[LegacyRoute, str] = Field(default_factory=dict)
    """Model of each legacy text route, for requests that name none; without, there is no route."""
    max_picture_body_mib: int = Field(88, ge=1, le=90)
    """Largest body of a request that brings pictures, which hold at most 80 MiB together."""
    default_image_model: _Name | None = None
    """Makes and edits the pictures of requests that name no model; none: the only one there is."""
    default_background_model: _Name | None = None
    """Makes backdrops for requests that name no model; none: as `default_image_model`."""
    default_matte_model: _Name | None = None
    """Cuts out for requests that name no matting network; none: the only one there is."""
    fetch_max_mib: int = Field(80, ge=1, le=80)
    """Largest picture that is fetched from a URL."""
    fetch_within_s: _Seconds = 10.0
    """A picture is fetched within this time, from the resolution of its host to the last byte."""
    fetch_redirects: int = Field(3, ge=0, le=10)
    """Redirects that are followed to a picture."""
    fetch_allow_private: bool = False
    """Fetch from private, loopback and other addresses that are not public, too, at any port."""
    fetch_allow_hosts: list[_Name] = Field(default_factory=list)
    """Hosts to fetch from whatever their address and port; exactly as URLs name them."""
    access_log: bool = True
    """One line a request."""
    access_log_file: LoosePath | None = None
    """Where those lines go; none: to standard error, among all others."""
    access_log_mib: int = Field(128, ge=1)
    """What the file and the three before it take together, over all workers."""

    @field_validator("listen")
    @classmethod
    def _open_on_loopback_only(cls, value: str, known: ValidationInfo) -> str:
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError("expected host:port, e.g. 127.0.0.1:8080")
        if known.data.get("keys_file") is None and not is_loopback(host.strip("[]")):
            raise ValueError(
                "expected a loopback address (127.0.0.1, [::1] or localhost), because without API "
                "keys everybody who can reach it would be served; set edge.keys_file, or put a "
                "proxy that checks callers in front"
            )
        return value

    def located(self, folder: Path) -> Self:
        """With its paths counted from the configuration's folder."""
        paths = {"access_log_file": self.access_log_file, "keys_file": self.keys_file}
        given = {name: folder / path for name, path in paths.items() if path is not None}
        return self.model_copy(update=given)

    @property
    def address(self) -> tuple[str, int]:
        """Host, without brackets, and port to bind."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def most_link_bytes(self) -> int:
        """Of one message between a worker and its parent: it may hold all that is kept."""
        return (self.stored_responses_mib + 1) * 1024 * 1024

    def of_one_worker(self) -> Self:
        """The same, with a worker's part of what is bounded over all of them.

        The largest body finds room in it.
        """
        least_mib = max(self.max_body_mib, self.max_picture_body_mib)
        bodies_mib = max(-(-self.max_bodies_mib // self.workers), least_mib)
        requests = -(-self.max_open_requests // self.workers)
        return self.model_copy(update={"max_bodies_mib": bodies_mib, "max_open_requests": requests})
