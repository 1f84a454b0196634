"""A house whose configuration changes while it runs: models come, go and change under requests.

The engines are simulated, all else is as people run it; one test has a real language model.
"""

import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from chassis.channel import open_channel
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2
from tests.integration.house import House, configuration, free_port, started, until

SEEN_S = 20.0
"""A change is taken within two seconds; this machine may be busy."""
STAYS: dict[str, Any] = {"kind": "language", "lane": "chat", "context_tokens": 4096}
STAYS |= {"resident_mib": 100, "load_s": 0.1, "places": 4, "tokens_per_s": 40}


@dataclass
class Written:
    """The configuration of a running house, and a client of it."""

    house: House
    path: Path
    http: httpx.AsyncClient
    first: str = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.path.read_text()

    def write(self, text: str) -> None:
        """As editors do: beside it, then in its place."""
        new = self.path.with_name("cohabit.yaml.new")
        new.write_text(text)
        new.replace(self.path)

    def models(self, service: str, **models: dict[str, Any]) -> None:
        """The file as it was at the start, with these models of a service."""
        whole = yaml.safe_load(self.first)
        whole[service]["models"] = models
        self.write(yaml.safe_dump(whole))

    async def names(self) -> set[str]:
        answer = await self.http.get("/v1/models")
        return {model["id"] for model in answer.json()["data"]}

    async def lists(self, *names: str) -> None:
        async def shown() -> bool:
            return await self.names() == set(names)

        await until(shown, SEEN_S, f"the list is {names}")

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get("/status")).json()
        return found

    async def says(self, words: str) -> None:
        async def said() -> bool:
            return any(words in reason for reason in (await self.status())["reasons"])

        await until(said, SEEN_S, f"/status says {words}")

    async def ask(self, model: str, **more: object) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello."}], **more}
        return await self.http.post("/v1/chat/completions", json=body)


@asynccontextmanager
async def writing(house: House) -> AsyncIterator[Written]:
    """The file is as it was when the block ends, and the house has taken that."""
    async with httpx.AsyncClient(base_url=house.url, timeout=60) as http:
        written = Written(house, house.folder / "cohabit.yaml", http)
        names = await written.names()
        yield written
        written.write(written.first)
        await written.lists(*names)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, port = tmp_path_factory.mktemp("reload"), free_port()
    whole = {
        "run_dir": "run",
        "state_dir": "state",
        "broker": {"device": "simulated", "capacity_mib": 1000},
        "scheduler": {"permits": 8},
        "simulated": {"models": {"old": STAYS, "other": STAYS}},
        "llm": {"models": {}},
        "edge": {"listen": f"127.0.0.1:{port}", "keepalive_s": 0.2},
    }
    path = folder / "cohabit.yaml"
    path.write_text(yaml.safe_dump(whole))
    with started(path, port) as house:
        yield house


@dataclass
class Stream:
    """An answer that is being read."""

    lines: AsyncIterator[str]
    text: str = ""
    finish: str = ""
    done: bool = False

    @property
    def words(self) -> int:
        return len(self.text.split())

    async def first(self) -> None:
        while not self.text:
            self._take(await anext(self.lines))

    async def rest(self) -> None:
        async for line in self.lines:
            self._take(line)

    def _take(self, line: str) -> None:
        if not line.startswith("data: "):
            return
        if line == "data: [DONE]":
            self.done = True
            return
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            self.text += choice["delta"].get("content") or ""
            self.finish = choice["finish_reason"] or self.finish


@asynccontextmanager
async def streaming(w: Written, model: str, words: int) -> AsyncIterator[Stream]:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello."}]}
    more = {"max_tokens": words, "ignore_eos": True, "stream": True}
    async with w.http.stream("POST", "/v1/chat/completions", json={**body, **more}) as answer:
        assert answer.status_code == 200
        stream = Stream(answer.aiter_lines())
        await stream.first()
        yield stream


async def test_a_model_is_added_and_another_removed_while_it_answers(house: House) -> None:
    async with writing(house) as w, streaming(w, "old", 320) as stream:
        w.models("simulated", new=STAYS, other=STAYS)
        await w.lists("new", "other")
        assert (await w.ask("new", max_tokens=5)).status_code == 200

        gone = await w.ask("old", max_tokens=5)
        assert gone.status_code == 404
        assert gone.json()["error"]["code"] == "model_not_found"
        old = next(one for one in (await w.status())["models"] if one["name"] == "old")
        assert (old["removed"], old["queue"]["running"]) == (True, 1)

        await stream.rest()
        assert (stream.words, stream.finish, stream.done) == (320, "length", True)

        async def away() -> bool:
            return set(await house.models()) == {"new", "other"}

        await until(away, SEEN_S, "old is gone")
        assert all("old" not in lease.holder for lease in await house.leases())


async def test_a_model_that_is_put_back_while_it_answers_serves_on(house: House) -> None:
    async with writing(house) as w, streaming(w, "old", 320) as stream:
        before = (await house.models())["old"].instances[0].instance_id
        w.models("simulated", other=STAYS)
        await w.lists("other")
        w.write(w.first)
        await w.lists("old", "other")
        assert (await w.ask("old", max_tokens=5)).status_code == 200
        assert (await house.models())["old"].instances[0].instance_id == before
        await stream.rest()
        assert stream.words == 320


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("simulated: {models: [\n", "expected YAML"),
        ("simulated: {models: {old: {lane: chat}}}\n", "simulated.models.old.kind: missing"),
        ("", "it is empty"),
    ],
)
async def test_a_file_that_is_wrong_changes_nothing_and_is_said(
    house: House, text: str, why: str
) -> None:
    async with writing(house) as w:
        async with streaming(w, "old", 160) as stream:
            w.write(text)
            await w.says(why)
            assert (await w.ask("other", max_tokens=5)).status_code == 200
            assert await w.names() == {"old", "other"}
            await stream.rest()
            assert stream.words == 160
        w.write(w.first)

        async def well() -> bool:
            return bool((await w.status())["status"] == "ok")

        await until(well, SEEN_S, "the house is well again")


async def test_a_service_that_crashes_while_the_file_is_wrong_comes_back(house: House) -> None:
    async with writing(house) as w:
        w.write("simulated: {models: [\n")
        await w.says("expected YAML")
        os.kill(house.process("services.simulated").pid, signal.SIGKILL)

        async def refused() -> bool:
            return "simulated ended with 2" in house.log.read_text()

        await until(refused, SEEN_S, "it cannot use the file")
        w.write(w.first)

        async def answers() -> bool:
            return (await w.ask("old", max_tokens=1)).status_code == 200

        await until(answers, 60, "it is back")


async def test_keys_that_need_a_restart_are_named_with_their_service(house: House) -> None:
    async with writing(house) as w:
        whole = yaml.safe_load(w.first)
        whole["scheduler"]["permits"] = 3
        whole["simulated"]["time_scale"] = 2.0
        w.write(yaml.safe_dump(whole))
        expected = {
            "scheduler": ["scheduler.permits"],
            "simulated": ["simulated.time_scale"],
        }

        async def named() -> bool:
            due = (await w.status())["restarts_due"]
            return bool(due == expected)

        await until(named, SEEN_S, "both are named")
        assert (await w.status())["permits"]["total"] == 8


async def test_rules_follow_the_models_they_are_about(house: House) -> None:
    async with writing(house) as w:
        whole = yaml.safe_load(w.first)
        whole["simulated"]["models"]["new"] = STAYS
        whole["scheduler"]["residency"] = {"models": {"new": {"pinned": True}}}
        w.write(yaml.safe_dump(whole))
        await w.lists("new", "old", "other")

        async def pinned() -> bool:
            models = (await house.status()).models
            return {one.model_key for one in models if one.pinned} == {"new"}

        await until(pinned, SEEN_S, "new is pinned")


async def test_a_model_that_moves_to_another_service_is_known_there(house: House) -> None:
    async with writing(house) as w, streaming(w, "other", 160) as stream:
        whole = yaml.safe_load(w.first)
        del whole["simulated"]["models"]["other"]
        whole["llm"]["models"] = {"other": {"path": "other.gguf"}}
        w.write(yaml.safe_dump(whole))

        async def moved() -> bool:
            there = (await house.models()).get("other")
            return there is not None and there.service == "llm"

        await until(moved, SEEN_S, "other is a model of llm")
        await stream.rest()
        assert stream.words == 160


async def test_who_names_no_model_is_cut_out_by_the_default_of_now(tmp_path: Path) -> None:
    port, asked = free_port(), matte_pb2.PlanRemovalRequest(width_px=64, height_px=64)
    cutter: dict[str, object] = {"models": {"former": {"path": "former.onnx"}}}
    with started(configuration(tmp_path, port, matte=cutter), port) as house:
        async with writing(house) as w, open_channel(house.address("matte")) as channel:
            stub: matte_pb2_grpc.MatteServiceAsyncStub = matte_pb2_grpc.MatteServiceStub(channel)
            await stub.PlanRemoval(asked, timeout=SEEN_S)
            w.models("matte", new={"path": "new.onnx"})

            async def changed() -> bool:
                models = await house.models()
                return "new" in models and "former" not in models

            await until(changed, SEEN_S, "one model has taken the place of the other")
            await stub.PlanRemoval(asked, timeout=SEEN_S)  # the only model there is


@pytest.mark.model
async def test_a_real_model_that_is_loaded_takes_its_new_settings_with_its_next_load(
    tmp_path: Path,
) -> None:
    port = free_port()
    with started(configuration(tmp_path, port), port) as house:
        async with writing(house) as w:
            assert (await w.ask("tiny", max_tokens=1)).status_code == 200
            tiny = {"path": "tiny.gguf", "places": 2, "context_tokens": 1024}
            w.models("llm", tiny=tiny, twin=tiny)
            await w.lists("tiny", "twin")

            async def stale() -> bool:
                return (await house.models())["tiny"].stale

            await until(stale, SEEN_S, "tiny is stale")
            assert (await house.models())["tiny"].instances[0].places == 4
            async with house.scheduler() as scheduler:
                await scheduler.UnloadModel(scheduler_pb2.UnloadModelRequest(model="tiny"))
            assert (await w.ask("tiny", max_tokens=1)).status_code == 200
            changed = (await house.models())["tiny"]
            assert (changed.stale, changed.instances[0].places) == (False, 2)
            assert changed.state == models_pb2.MODEL_STATE_READY
            assert (await w.ask("twin", max_tokens=1)).status_code == 200
