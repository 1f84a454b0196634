"""What an answer of any dialect must look like, however hostile the request was.

Refused with the envelope of its dialect, or answered; a stream has a proper end, or an error event.
Never an internal error, and never an engine that died of it.
"""

import json
import time
from typing import Any

import httpx

DEADLINE_S = 30.0
"""From the first byte of the request to the last of the answer: longer is a hang."""
REFUSED = (400, 404, 413, 429, 501)
_OURS = ("internal_error", "engine_crashed", "model_failed")


def post(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    """The whole answer, judged. Fails when it takes too long, or is none."""
    began_s = time.monotonic()
    headers = {"content-type": "application/json"}
    answer = client.post(path, content=body, headers=headers, timeout=DEADLINE_S)
    took_s = time.monotonic() - began_s
    assert took_s < DEADLINE_S, f"{path} took {took_s:.1f} s"
    check(path, answer)
    return answer


def check(path: str, answer: httpx.Response) -> None:
    """Fails unless `answer` is one that a client of the path's dialect understands."""
    kind = answer.headers["content-type"].partition(";")[0]
    if answer.status_code == 200 and kind == "text/event-stream":
        check_stream(path, answer.text)
        return
    assert kind == "application/json", f"{path} answered {kind}"
    told = answer.json()
    if answer.status_code != 200:
        assert answer.status_code in REFUSED, f"{path}: {answer.status_code} {answer.text[:2000]}"
        _check_refusal(path, told)


def _check_refusal(path: str, told: Any) -> None:
    error = told["error"]
    assert error["message"].endswith((".", ":")) or len(error["message"]) > 20, told
    if path.startswith("/v1/messages"):
        assert told["type"] == "error", told
        assert told["request_id"], told
        code = error.get("details", {}).get("error_code", "")
    else:
        assert {"message", "type", "param", "code"} == set(error), told
        code = error["code"] or ""
    assert code not in _OURS, told


def check_stream(path: str, text: str) -> None:
    """Fails unless a stream ends as those of the path's dialect do, or in an error that is none
    of ours."""
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    data = [line[6:] for event in events for line in event.split("\n") if line.startswith("data: ")]
    assert len(data) == len(events), text[-2000:]
    told = [json.loads(one) for one in data if one != "[DONE]"]
    assert told, text
    errors = [one["error"] for one in told if one.get("error")]
    if errors:
        assert not any(str(code) in str(errors) for code in _OURS), errors
    elif path == "/v1/messages":
        assert told[-1]["type"] == "message_stop", data[-3:]
    elif path == "/v1/responses":
        assert told[-1]["type"] in ("response.completed", "response.incomplete"), data[-3:]
    elif path.startswith("/v1/images/"):
        assert told[-1]["type"].endswith(".completed"), data[-3:]
    elif path.startswith("/v1/jobs/"):
        assert told[-1]["state"] in ("succeeded", "failed", "cancelled"), data[-3:]
    else:
        assert data[-1] == "[DONE]", data[-3:]
