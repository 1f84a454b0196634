"""The house in containers, end to end, in the order in which it stands here: the official client's
journey through Envoy, the death of each container, and upgrades under load.

Nothing is faked: real images in a real engine, and the real models, fetched by the house itself.
"""

import io
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import ResponseFormat
from PIL import Image
from skimage import data

from tests.e2e.composed import VERSIONS, Composed
from tests.e2e.load import Tally, asking
from tests.e2e.times import TIMES

# Of a test alone: images that are built for the first time take as long as they take.
pytestmark = pytest.mark.timeout(900, func_only=True)

SERVICES = ("broker", "scheduler", "llm", "matte", "jobs", "edge-1", "edge-2", "envoy")
BACK_S = 60.0
"""A house that lost one of its containers answers everything again within this time."""
CLIENTS = 4
POLL_S = 0.2
HELLO: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
]


def chat(client: openai.OpenAI, form: ResponseFormat | openai.Omit = openai.omit) -> str:
    answer = client.chat.completions.create(
        model="smollm2",
        messages=HELLO,
        temperature=0,
        max_tokens=40,
        response_format=form,
    )
    return answer.choices[0].message.content or ""


def photograph() -> bytes:
    out = io.BytesIO()
    Image.fromarray(data.astronaut()).save(out, "JPEG")
    return out.getvalue()


def cut_out(client: openai.OpenAI) -> Image.Image:
    answer = client.post(
        "/images/background-removals",
        cast_to=httpx.Response,
        body={},
        files={"image": ("photo.jpg", photograph(), "image/jpeg")},
        options={"headers": {"content-type": "multipart/form-data"}},
    )
    return Image.open(io.BytesIO(answer.content))


def do_job(client: openai.OpenAI) -> list[str]:
    """A removal handed in as a job, and watched; what its results are."""
    headers = {"authorization": f"Bearer {client.api_key}"}
    root = str(client.base_url).removesuffix("/v1/")
    with httpx.Client(base_url=root, headers=headers, timeout=120, trust_env=False) as http:
        handed = http.post(
            "/v1/images/background-removals/jobs",
            files={"image": ("photo.jpg", photograph(), "image/jpeg")},
        )
        assert handed.status_code == 202, handed.text
        job_id = handed.json()["id"]
        with http.stream("GET", f"/v1/jobs/{job_id}/events") as events:
            told = [
                json.loads(line.removeprefix("data: "))
                for line in events.iter_lines()
                if line.startswith("data: ")
            ]
        assert told[-1]["state"] == "succeeded", told[-1]
        return [result["role"] for result in told[-1]["results"]]


def until(true: Callable[[], bool], within_s: float, what: str) -> float:
    """Ask again and again; how many seconds it took to come true."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < within_s, f"{what}: not within {within_s} s"
        time.sleep(POLL_S)  # a poll of other processes, bounded above
    return time.monotonic() - began


def succeeds(asked: Callable[[], object]) -> Callable[[], bool]:
    def tried() -> bool:
        try:
            asked()
        except (openai.OpenAIError, httpx.HTTPError, AssertionError):
            return False
        return True

    return tried


# -- the journey ---------------------------------------------------------------------------------


def test_all_of_it_is_healthy(house: Composed) -> None:
    assert {house.health(service) for service in SERVICES} == {"healthy"}


def test_without_a_key_there_is_nothing(house: Composed, key: str) -> None:
    for wrong in ("none", key[:-1], key + "x"):
        with (
            openai.OpenAI(base_url=f"{house.url}/v1", api_key=wrong, max_retries=0) as stranger,
            pytest.raises(openai.AuthenticationError),
        ):
            chat(stranger)


def test_the_insides_are_out_of_reach(house: Composed, key: str) -> None:
    with httpx.Client(base_url=house.url, trust_env=False) as http:
        for path in ("/v1/admin/models", "/rest/v1/leases", "/cohabit.broker.v1.BrokerService/x"):
            answer = http.get(path, headers={"authorization": f"Bearer {key}"})
            assert answer.status_code in {403, 404}, f"{path}: {answer.status_code}"
    published = [name for name in SERVICES if house.inspect(name)["HostConfig"]["PortBindings"]]
    assert published == ["envoy"]
    for name in SERVICES:
        made = house.inspect(name)
        assert made["HostConfig"]["ReadonlyRootfs"], name
        assert made["HostConfig"]["CapDrop"] == ["ALL"], name
        assert made["Config"]["User"].split(":")[0] == "10001", name


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} >= {"smollm2", "u2netp"}


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    with TIMES.of("first chat, the model loads"):
        assert "Paris" in chat(client)


def test_a_stream_comes_in_pieces(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="smollm2",
            messages=HELLO,
            temperature=0,
            max_tokens=40,
            stream=True,
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "Paris" in text
    assert len(chunks) > 4, "it came in one piece"


def test_json_is_what_the_schema_says(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "river": {"enum": ["Seine", "Tiber"]}},
        "required": ["city", "river"],
        "additionalProperties": False,
    }
    form: ResponseFormat = {
        "type": "json_schema",
        "json_schema": {"name": "city", "schema": schema},
    }
    said = json.loads(chat(client, form))
    assert said["city"] in {"Paris", "Rome"}
    assert said["river"] in {"Seine", "Tiber"}


def test_a_subject_is_cut_out(client: openai.OpenAI) -> None:
    with TIMES.of("first cutout, the network loads"):
        picture = cut_out(client)
    assert picture.mode == "RGBA"
    low, high = picture.getchannel("A").getextrema()
    assert (low, high) == (0, 255)


def test_a_job_is_done(client: openai.OpenAI) -> None:
    with TIMES.of("a job"):
        assert do_job(client) == ["cutout"]


def test_it_is_served_by_tls(house: Composed, key: str) -> None:
    pem = house.compose("exec", "-T", "envoy", "cat", "/etc/envoy/tls/tls.crt")
    context = ssl.create_default_context(cadata=pem)
    http = openai.DefaultHttpxClient(verify=context, trust_env=False)
    base = f"https://localhost:{house.tls_port}/v1"
    with openai.OpenAI(base_url=base, api_key=key, max_retries=0, http_client=http) as client:
        assert "Paris" in chat(client)


# -- deaths --------------------------------------------------------------------------------------

ASKS: dict[str, Callable[[openai.OpenAI], object]] = {"matte": cut_out, "jobs": do_job}
"""What shows that a service is back; a chat does for the others."""


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_container_comes_back(
    house: Composed, client: openai.OpenAI, service: str
) -> None:
    before = house.starts(service)
    house.kill(service)
    began = time.monotonic()
    until(lambda: house.starts(service) != before, BACK_S, f"{service} started again")
    asked = ASKS.get(service, chat)
    until(succeeds(lambda: asked(client)), BACK_S, f"an answer after {service} was killed")
    TIMES.add(f"{service} killed, answered again", time.monotonic() - began)
    until(lambda: house.health(service) == "healthy", BACK_S, f"{service} healthy")
    assert "Paris" in chat(client)


# -- upgrades ------------------------------------------------------------------------------------


@contextmanager
def under_load(house: Composed, key: str, what: str, *, retries: int = 0) -> Iterator[Tally]:
    """Clients ask before, during and after the block; not one request may be lost."""
    with asking(house.url, key, CLIENTS, retries=retries) as tally:
        until(lambda: tally.done >= 2 * CLIENTS, BACK_S, "answers before the upgrade")
        began = time.monotonic()
        yield tally
        took_s, during = time.monotonic() - began, tally.done
        until(lambda: tally.done >= during + 2 * CLIENTS, BACK_S, "answers after the upgrade")
    said = f"{tally.done} requests, {len(tally.lost)} lost, slowest {tally.slowest_s:.1f} s"
    TIMES.add(f"{what} upgraded under load", took_s, said)
    assert not tally.lost, "\n".join(tally.lost[:20])


@pytest.fixture(scope="session")
def newer(house: Composed) -> str:
    """A version that differs from the one that runs."""
    with TIMES.of("images of the next version, from the cache"):
        house.build(VERSIONS[1])
    return VERSIONS[1]


def test_edges_are_upgraded_one_after_the_other(house: Composed, key: str, newer: str) -> None:
    with under_load(house, key, "edge-1 and edge-2"):
        for service in ("edge-1", "edge-2"):
            house.upgrade(service, newer)
    for service in ("edge-1", "edge-2"):
        assert house.image(service).endswith(f":{newer}")


def test_engines_are_upgraded(house: Composed, key: str, newer: str) -> None:
    with under_load(house, key, "llm"):
        house.upgrade("llm", newer)
    assert house.image("llm").endswith(f":{newer}")


@pytest.mark.parametrize("service", ["broker", "jobs", "matte"])
def test_what_no_chat_waits_for_is_upgraded(
    house: Composed, key: str, newer: str, service: str
) -> None:
    with under_load(house, key, service):
        house.upgrade(service, newer)
    assert house.image(service).endswith(f":{newer}")


def test_the_scheduler_is_upgraded(house: Composed, key: str, newer: str) -> None:
    """New requests are refused while it is away, with the time to come back: clients do."""
    with under_load(house, key, "scheduler", retries=8):
        house.upgrade("scheduler", newer)
    assert house.image("scheduler").endswith(f":{newer}")
