"""GET /v1/loras: the LoRAs that requests may name, in the shape of OpenAI's lists."""

from typing import Literal

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from edge.documenting import answers, query
from edge.keys.caller import caller_of
from edge.pictures.service import DiffusionService
from edge.roster import Roster

PATH = "/v1/loras"
_MODEL = query("model", "Only those that this model can take.", {"type": "string", "minLength": 1})
_encode = msgspec.json.Encoder().encode


class LoraObject(msgspec.Struct):
    """One file, as requests name it."""

    id: str
    """For `loras[].lora_id`."""
    filename: str
    """For `loras[].filename`; empty where the id alone says it."""
    size_bytes: int
    created: int
    """When it was last changed, in Unix time."""
    base: str
    """Family of models it was trained for; empty: unknown."""
    object: Literal["lora"] = "lora"


class LoraList(msgspec.Struct):
    """All there are, ordered by id."""

    data: list[LoraObject]
    object: Literal["list"] = "list"


def add_loras(app: FastAPI, service: DiffusionService, roster: Roster) -> None:
    """The route, for a house that has a service for diffusion models."""

    @app.get(
        PATH,
        tags=["pictures"],
        summary="List the LoRAs",
        openapi_extra={"parameters": [_MODEL]},
        responses=answers(LoraList, "The LoRAs that requests may name.", 404, 503),
    )
    async def list_loras(request: Request) -> Response:
        model = request.query_params.get("model", "")
        if model:
            await roster.behind(model, caller_of(request.scope))
        told = await service.loras(model)
        data = [
            LoraObject(
                id=one.lora_id,
                filename=one.filename,
                size_bytes=one.size_bytes,
                created=one.changed_unix_ms // 1000,
                base=one.base,
            )
            for one in told.loras
        ]
        return Response(_encode(LoraList(data)), media_type="application/json")
