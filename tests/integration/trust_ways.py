"""Ways to get in, each with a name: what is sent to a house whose keys are Known's.

Nobody may come in by any of them, whether the edge is dialled or stands behind a proxy.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.trust_wire import request
from tests.keys_kit import hash_of, secret_of

VAULT = "vault"
"""The model that everybody is after; `bob` has a key that is not for it."""
CHATS = "/v1/chat/completions"
_MESSAGES = [{"role": "user", "content": "Open."}]
CHAT = json.dumps({"model": VAULT, "messages": _MESSAGES, "max_tokens": 1}).encode()

ALICE, BOB = secret_of("alice"), secret_of("bob")
ALL: tuple[str, ...] = tuple(map(secret_of, ("alice", "bob", "old", "off", "gone", "watcher")))
"""Every secret there is or was."""


@dataclass(frozen=True)
class Known:
    """What of alice's a thief has heard of."""

    job: str
    result: str
    response: str


@dataclass(frozen=True)
class Way:
    """One of them."""

    name: str
    sent: Callable[[Known], bytes]
    statuses: tuple[int, ...] = field(default=(401,))
    """What may be answered, to each request that the bytes hold."""
    answers: int = 1
    """How many the connection gets before it ends."""


def _chat(name: str, *lines: str | bytes, target: str = CHATS, **more: Any) -> Way:
    statuses = more.pop("statuses", (401,))
    sent = request("POST", target, *lines, body=more.pop("body", CHAT), **more)
    return Way(name, lambda _: sent, statuses)


def _raw(name: str, sent: bytes, *statuses: int, answers: int = 1) -> Way:
    return Way(name, lambda _: sent, statuses or (400,), answers)


def _bearer(key: str) -> str:
    return f"Authorization: Bearer {key}"


_WITH_KEY = json.dumps({**json.loads(CHAT), "api_key": ALICE, "secret": ALICE}).encode()

NO_KEY = (
    _chat("no key"),
    _chat("key in the query", target=f"{CHATS}?api_key={ALICE}&secret={ALICE}&key={ALICE}"),
    _chat("key in the body", body=_WITH_KEY),
    _chat("key in a cookie", f"Cookie: authorization=Bearer {ALICE}; x-api-key={ALICE}"),
    _chat("key in the path", target=f"/{ALICE}{CHATS}"),
    _chat("key as the user of the target", target=f"http://{ALICE}@127.0.0.1{CHATS}"),
    _chat("key for a proxy", f"Proxy-Authorization: Bearer {ALICE}"),
    _chat("key in a forwarded header", f"X-Forwarded-Authorization: Bearer {ALICE}"),
    _chat("key in a header with underscores", f"x_api_key: {ALICE}"),
    _chat("key by the basic scheme", f"Authorization: Basic {ALICE}"),
    _chat("key without a scheme", f"Authorization: {ALICE}"),
    _chat("key as a parameter", f'Authorization: Bearer token="{ALICE}"'),
)
NEARLY = (
    _chat("all but its end", _bearer(ALICE[:-1])),
    _chat("more than its end", _bearer(ALICE + "0")),
    _chat("all but its beginning", _bearer(ALICE[3:])),
    _chat("in capitals", _bearer(ALICE.upper())),
    _chat("two spaces before it", f"Authorization: Bearer  {ALICE}"),
    _chat("a tab before it", f"Authorization: Bearer\t{ALICE}"),
    _chat("a space within it", _bearer(f"{ALICE[:20]} {ALICE[20:]}")),
    _chat("two keys in one header", _bearer(f"{ALICE}, Bearer {BOB}")),
    _chat("its hash", _bearer(hash_of(ALICE))),
    _chat("its hash without a prefix", _bearer(hash_of(ALICE).removeprefix("sha256:"))),
    _chat(
        "its hash, as bytes", b"X-API-Key: " + bytes.fromhex(hash_of(ALICE)[7:]), statuses=(400,)
    ),
    _chat("the name of its holder", _bearer("alice")),
    _chat("nothing", "Authorization: Bearer ", "X-API-Key:"),
    _chat("words that stand for nothing", _bearer("null")),
    _chat("in wide letters", b"X-API-Key: " + ALICE.replace("s", "\uff53").encode()),
    _chat("a key of 20 KB", _bearer(ALICE * 250)),
    _chat("an expired key", _bearer(secret_of("old"))),
    _chat("a disabled key", _bearer(secret_of("off"))),
    _chat("a removed key", _bearer(secret_of("gone"))),
)
_LENGTH = f"Content-Length: {len(CHAT)}"
_SMUGGLED = request("POST", CHATS, body=CHAT)
SMUGGLED = (
    _chat("two keys that are good", _bearer(ALICE), _bearer(BOB)),
    _chat("one key twice", _bearer(ALICE), _bearer(ALICE)),
    _chat("a bad key and a good one", _bearer("x"), _bearer(ALICE)),
    _chat("two spellings that differ", _bearer(ALICE), "X-API-Key: x"),
    _chat("a folded header", "X-Note: a", f" Authorization: Bearer {ALICE}", statuses=(400,)),
    _chat("a key in a folded line", "Authorization: Bearer", f" {ALICE}", statuses=(400, 401)),
    _chat("a space before the colon", f"Authorization : Bearer {ALICE}", statuses=(400,)),
    _chat("NUL in the key", f"Authorization: Bearer {ALICE}\0", statuses=(400,)),
    _chat("NUL in the name", f"Authorization\0: Bearer {ALICE}", statuses=(400,)),
    _chat("CR within the key", f"Authorization: Bearer {ALICE}\rX: y", statuses=(400,)),
    _chat("LF within a header", f"X-Note: a\nAuthorization: Bearer {ALICE}", statuses=(400,)),
    _raw("lines that end in LF", request("POST", CHATS, body=CHAT).replace(b"\r\n", b"\n")),
    _chat("two lengths", "Content-Length: 1", statuses=(400,)),
    _chat("a length and chunks", "Transfer-Encoding: chunked", statuses=(400,)),
    _raw(
        "a request within the body of another",
        request("GET", "/health", f"Content-Length: {len(_SMUGGLED)}", keep=True) + _SMUGGLED,
        200,
    ),
    _raw(
        "chunks that hide a request",
        request(
            "POST", "/v1/models", _bearer(BOB), "Transfer-Encoding: xchunked", _LENGTH, keep=True
        )
        + CHAT,
        400,
    ),
    _raw(
        "a key in a trailer",
        request("POST", CHATS, "Transfer-Encoding: chunked", "Trailer: authorization")
        + b"%x\r\n%s\r\n0\r\nAuthorization: Bearer %s\r\n\r\n" % (len(CHAT), CHAT, ALICE.encode()),
        401,
    ),
    _raw(
        "behind the request of somebody with a key",
        request("GET", "/v1/models", _bearer(BOB), keep=True) + _SMUGGLED,
        *(200, 401),
        answers=2,
    ),
    _chat("an upgrade", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"),
    _chat("a websocket", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    _chat("HTTP/1.0 without a host", version="HTTP/1.0", host=None),
    _raw("HTTP/2 by prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), 400, 505),
    _raw("a tunnel", request("CONNECT", "127.0.0.1:80"), 400, 401),
    _raw(
        "another target by a header",
        request(
            "POST",
            "/health",
            *(
                "X-HTTP-Method-Override: POST",
                f"X-Original-URL: {CHATS}",
                f"X-Rewrite-URL: {CHATS}",
            ),
            body=CHAT,
        ),
        405,
    ),
)
_TARGETS: Mapping[str, str] = {
    "two slashes first": f"/{CHATS}",
    "two slashes within": "/v1//chat/completions",
    "escaped letters": "/%76%31/ch%61t/completions",
    "escaped slashes": "/v1%2fchat%2fcompletions",
    "back from an open path": f"/health/..{CHATS}",
    "back from an open path, escaped": f"/health/%2e%2e{CHATS}",
    "back from an open path, escaped twice": f"/health/%252e%252e{CHATS}",
    "back from the documentation": f"/docs/..%2f..{CHATS}",
    "back from an admin path": f"/v1/admin/../..{CHATS}",
    "a slash last": f"{CHATS}/",
    "capitals": CHATS.upper(),
    "a parameter of the path": f"{CHATS};/health",
    "a parameter of an open path": f"/health;{CHATS}",
    "a query that looks open": f"{CHATS}?/health",
    "a fragment that looks open": f"{CHATS}#/health",
    "NUL last": f"{CHATS}%00/health",
    "an open path before NUL": f"/health%00{CHATS}",
    "backslashes": CHATS.replace("/", "\\"),
    "the absolute form": f"http://127.0.0.1{CHATS}",
    "the absolute form, of another": f"http://elsewhere.example{CHATS}",
    "a dot first": f"/.{CHATS}",
    "wide letters": "/v1/ch%EF%BD%81t/completions",
}
TRICKS = tuple(
    _chat(name, target=target, statuses=(400, 401, 403, 404, 405))
    for name, target in _TARGETS.items()
)
_PROXIES = (
    *("X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1;host=localhost", "X-Real-IP: ::1"),
    *("X-Forwarded-Host: localhost", "X-Forwarded-Proto: http", "Via: 1.1 localhost"),
    *("CF-Connecting-IP: 127.0.0.1", "True-Client-IP: 127.0.0.1", "X-Client-IP: 127.0.0.1"),
    *("X-Envoy-Internal: true", "X-Envoy-External-Address: 127.0.0.1", "X_Forwarded_For: ::1"),
    *("X-Forwarded-For:", "X-Original-Forwarded-For: 127.0.0.1"),
)
_EVICT = f"/v1/admin/models/{VAULT}/load"


def _admin(name: str, *lines: str, target: str = _EVICT, **more: Any) -> Way:
    sent = request("POST", target, _bearer(ALICE), *lines, body=b"{}", **more)
    return Way(f"admin: {name}", lambda _: sent, (403,))


ADMIN = (
    *(_admin(line, line) for line in _PROXIES),
    _admin("escaped, through a proxy", _PROXIES[0], target=_EVICT.replace("a", "%61")),
    _admin("in the absolute form", _PROXIES[0], target=f"http://127.0.0.1{_EVICT}"),
    _admin("another name of this machine", host="cohabit.example"),
    _admin("a name that looks like this machine", host="127.0.0.1.cohabit.example"),
    _admin("a user in the host", host="127.0.0.1@cohabit.example"),
    _admin("two hosts", "Host: localhost"),
    _admin("a page from elsewhere", "Origin: https://elsewhere.example"),
    _admin("a page in a frame without an origin", "Origin: null"),
    _admin("an image on a page from elsewhere", "Sec-Fetch-Site: cross-site"),
)


def _signals(path: str, *lines: str, status: int) -> Way:
    sent = request("GET", path, _PROXIES[0], *lines)
    return Way(
        f"{path} through a proxy, {'with' if lines else 'without'} a key", lambda _: sent, (status,)
    )


SIGNALS = (
    *(_signals(path, status=401) for path in ("/metrics", "/status", "/errors")),
    *(_signals(path, _bearer(BOB), status=403) for path in ("/metrics", "/status", "/errors")),
)


def _theft(name: str, method: str, target: str, body: bytes = b"", *statuses: int) -> Way:
    """With bob's key, and the claim to be alice; `target` and `body` name what is hers."""

    def sent(known: Known) -> bytes:
        named = vars(known)
        told = body.decode()
        for word, value in named.items():
            told = told.replace(f"<{word}>", value)
        lines = (_bearer(BOB), "X-Cohabit-Key: alice", "X-Cohabit-Owner: alice")
        return request(method, target.format(**named), *lines, body=told.encode())

    return Way(f"alice's: {name}", sent, statuses or (404,))


_NEXT = json.dumps({"model": "tiny", "input": "x", "previous_response_id": "<response>"}).encode()
THEFTS = (
    _theft("job", "GET", "/v1/jobs/{job}"),
    _theft("job, cancelled", "POST", "/v1/jobs/{job}/cancel"),
    _theft("job, deleted", "DELETE", "/v1/jobs/{job}"),
    _theft("job, watched", "GET", "/v1/jobs/{job}/events"),
    _theft("result", "GET", "/v1/jobs/{job}/results/{result}"),
    _theft("main result", "GET", "/v1/jobs/{job}/result"),
    _theft("response", "GET", "/v1/responses/{response}"),
    _theft("response's input", "GET", "/v1/responses/{response}/input_items"),
    _theft("response, cancelled", "POST", "/v1/responses/{response}/cancel"),
    _theft("response, deleted", "DELETE", "/v1/responses/{response}"),
    _theft("conversation, gone on with", "POST", "/v1/responses", _NEXT, 400),
)


def _forbidden(name: str, path: str, *statuses: int, **body: Any) -> Way:
    sent = request("POST", path, _bearer(BOB), body=json.dumps(body).encode())
    return Way(f"a model that is not bob's: {name}", lambda _: sent, statuses or (403,))


_TWICE = CHAT.replace(b'{"model"', b'{"model": "tiny", "model"')
FORBIDDEN = (
    _forbidden("a chat", CHATS, model=VAULT, messages=_MESSAGES),
    _forbidden("a completion", "/v1/completions", model=VAULT, prompt="x"),
    _forbidden("a response", "/v1/responses", model=VAULT, input="x"),
    _forbidden("a message", "/v1/messages", model=VAULT, max_tokens=1, messages=_MESSAGES),
    _forbidden("a count", "/v1/messages/count_tokens", model=VAULT, messages=_MESSAGES),
    _forbidden("vectors", "/v1/embeddings", model=VAULT, input="x"),
    _forbidden("scores", "/v1/rerank", model=VAULT, query="x", documents=["y"]),
    _forbidden("tokens", "/tokenize", model=VAULT, content="x"),
    _forbidden("tokens back", "/detokenize", model=VAULT, tokens=[1]),
    _forbidden("a picture", "/v1/images/generations", model="tiny-paint", prompt="x"),
    _forbidden("the only one that paints", "/v1/images/generations", 404, prompt="x"),
    _forbidden("a job", "/v1/images/generations/jobs", model="tiny-paint", prompt="x"),
    _forbidden("in capitals", CHATS, model="VAULT", messages=_MESSAGES),
    _forbidden("a space behind it", CHATS, model="vault ", messages=_MESSAGES),
    _forbidden("behind a permitted one", CHATS, model="tiny\0vault", messages=_MESSAGES),
    _forbidden("in a list", CHATS, 400, model=["tiny", VAULT], messages=_MESSAGES),
    _raw("named twice", request("POST", CHATS, _bearer(BOB), body=_TWICE), 403),
    _raw("looked at", request("GET", f"/v1/models/{VAULT}", _bearer(BOB)), 403),
    _raw("its LoRAs", request("GET", "/v1/loras?model=tiny-paint", _bearer(BOB)), 403),
)
WAYS = (*NO_KEY, *NEARLY, *SMUGGLED, *TRICKS, *ADMIN, *SIGNALS, *THEFTS, *FORBIDDEN)
