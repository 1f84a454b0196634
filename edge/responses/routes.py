"""What can be asked about responses that were made: look, list what went in, cancel, delete."""

from dataclasses import dataclass

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from chassis.errors import Fault, Reason
from edge.documenting import answers, key_header, paging
from edge.errors import bad_field
from edge.keys.caller import owner_of
from edge.responses import listing
from edge.responses.in_flight import InFlight
from edge.responses.objects import ListedItem, ResponseDeleted, ResponseItemList, ResponseObject
from edge.responses.shelf import Seen, Shelf

_encode = msgspec.json.Encoder().encode
_OWN = {"parameters": [key_header()]}


@dataclass(frozen=True, slots=True)
class Responses:
    """Those that are over, and those that are not. Raises Fault for what is not there."""

    shelf: Shelf
    in_flight: InFlight

    async def body(self, name: str, owner: str) -> bytes:
        """The response."""
        if (run := self.in_flight.find(name, owner)) is not None:
            return run.writer.body()
        return (await self._seen(name, owner)).kept.body

    async def items(self, name: str, owner: str) -> list[ListedItem]:
        """What went into it."""
        if (run := self.in_flight.find(name, owner)) is not None:
            return run.given
        return (await self._seen(name, owner)).kept.items()

    async def cancel(self, name: str, owner: str) -> bytes:
        """End its work; the response as it was left."""
        run = self.in_flight.find(name, owner)
        if run is not None and run.in_progress:
            return await run.cancel()
        left = None if run is not None else await self.shelf.cancel(name, owner)
        if left is not None:
            return left
        if run is None:
            await self._seen(name, owner)
        raise bad_field(None, f"The response `{name}` is over; there is nothing to cancel.")

    async def delete(self, name: str, owner: str) -> None:
        """Keep it no longer."""
        if self.in_flight.find(name, owner) or not (await self._seen(name, owner)).over:
            raise bad_field(None, f"The response `{name}` is not over yet; cancel it first.")
        await self.shelf.forget(name, owner)

    def add_to(self, app: FastAPI) -> None:
        """The routes beside the one that answers."""
        _add_looks(app, self)
        _add_ends(app, self)

    async def _seen(self, name: str, owner: str) -> Seen:
        seen = await self.shelf.look(name, owner)
        if seen is None:
            message = f"Response with id '{name[:64]}' not found: it was never kept, or no longer."
            raise Fault(Reason.RESPONSE_NOT_FOUND, message)
        return seen


def _add_looks(app: FastAPI, responses: Responses) -> None:
    @app.get(
        "/v1/responses/{response_id}",
        tags=["responses"],
        summary="Look at a response",
        responses=answers(ResponseObject, "The response.", 400, 404),
        openapi_extra=_OWN,
    )
    async def get_response(response_id: str, request: Request) -> Response:
        if request.query_params.get("stream", "false") != "false":
            raise bad_field("stream", "`stream` is not supported here; remove it.")
        return _json(await responses.body(response_id, owner_of(request)))

    @app.get(
        "/v1/responses/{response_id}/input_items",
        tags=["responses"],
        summary="List what went into a response",
        responses=answers(ResponseItemList, "A page of items.", 400, 404),
        openapi_extra={"parameters": [*_OWN["parameters"], *paging(listing.MOST)]},
    )
    async def list_input_items(response_id: str, request: Request) -> Response:
        wish = listing.wish_of(request.query_params)
        items = await responses.items(response_id, owner_of(request))
        return _json(_encode(listing.page(items, wish)))


def _add_ends(app: FastAPI, responses: Responses) -> None:
    @app.delete(
        "/v1/responses/{response_id}",
        tags=["responses"],
        summary="Keep a response no longer",
        responses=answers(ResponseDeleted, "It is gone.", 400, 404),
        openapi_extra=_OWN,
    )
    async def delete_response(response_id: str, request: Request) -> Response:
        await responses.delete(response_id, owner_of(request))
        return _json(_encode(ResponseDeleted(response_id)))

    @app.post(
        "/v1/responses/{response_id}/cancel",
        tags=["responses"],
        summary="End the work on a response",
        responses=answers(ResponseObject, "The response as it was left.", 400, 404),
        openapi_extra=_OWN,
    )
    async def cancel_response(response_id: str, request: Request) -> Response:
        return _json(await responses.cancel(response_id, owner_of(request)))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
