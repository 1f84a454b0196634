"""Jobs and cutouts in a house with keys: in the name of the key, with its models alone."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cutout_kit import NETWORK, SUCCEEDED, PicturePeers, job, network, peers_of, result
from tests.edge_kit import House, opened
from tests.keys_kit import bearing, write_keys
from tests.picture_kit import PNG

B64 = base64.b64encode(PNG).decode()
REMOVALS = "/v1/images/background-removals"
OTHER = "isnet"


class Owned(PicturePeers):
    """A job service that notes whose jobs it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.models.append(network(OTHER))
        self.owners: list[str] = []

    async def GetJob(self, request: Any, context: Any) -> Any:
        self.owners.append(request.owner)
        return await super().GetJob(request, context)

    async def CancelJob(self, request: Any, context: Any) -> Any:
        self.owners.append(request.owner)
        return await super().CancelJob(request, context)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    file = write_keys(tmp_path / "keys.yaml", alice={}, bob={"models": [NETWORK]})
    async with opened(tmp_path, ("llm", "matte"), Owned, jobs=True, keys_file=file) as up:
        yield up


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/j1"),
        ("POST", "/v1/jobs/j1/cancel"),
        ("DELETE", "/v1/jobs/j1"),
        ("GET", "/v1/jobs/j1/events"),
        ("GET", "/v1/jobs/j1/result"),
        ("GET", "/v1/jobs/j1/results/r1"),
        ("GET", "/v1/jobs"),
    ],
)
async def test_jobs_are_looked_at_in_the_name_of_the_key(
    house: House, method: str, path: str
) -> None:
    peers = peers_of(house)
    assert isinstance(peers, Owned)
    peers.jobs["j1"], peers.files["r1"] = job(state=SUCCEEDED, results=[result("r1", b"x")]), b"x"
    headers = bearing("alice") | {"x-cohabit-key": "bob"}
    assert (await house.http.request(method, path, headers=headers)).status_code == 200
    streams: tuple[Any, ...] = (*peers.lists, *peers.watches, *peers.reads)
    asked = [*peers.owners, *(it.owner for it in streams)]
    assert asked
    assert set(asked) == {"alice"}


@pytest.mark.parametrize("path", [REMOVALS, f"{REMOVALS}/jobs"])
async def test_the_only_network_of_a_key_needs_no_name(house: House, path: str) -> None:
    answer = await house.http.post(path, json={"image": B64}, headers=bearing("alice"))
    assert answer.status_code == 400  # there are two
    assert OTHER in answer.text
    answer = await house.http.post(path, json={"image": B64}, headers=bearing("bob"))
    assert answer.status_code in (200, 202), answer.text
    assert [it.owner for it in peers_of(house).submits] == ["bob"] * ("jobs" in path)


@pytest.mark.parametrize("path", [REMOVALS, f"{REMOVALS}/jobs"])
async def test_another_network_is_not_for_it(house: House, path: str) -> None:
    body = {"image": B64, "model": OTHER}
    answer = await house.http.post(path, json=body, headers=bearing("bob"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_not_allowed")
    peers = peers_of(house)
    assert (peers.submits, peers.removals) == ([], [])


async def test_a_backdrop_is_painted_by_a_model_of_the_key(house: House) -> None:
    body = {"image": B64, "background_prompt": "a harbour", "background_model": "tiny"}
    for name, status in (("bob", 403), ("alice", 202)):
        named = body | {"model": NETWORK}
        answer = await house.http.post(f"{REMOVALS}/jobs", json=named, headers=bearing(name))
        assert answer.status_code == status, answer.text
