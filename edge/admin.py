"""The admin routes: every configured model, the device, and loads, unloads and swaps by hand."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import Response

from edge import json_body
from edge.admin_access import check_local
from edge.admin_calls import AdminCalls
from edge.body import Bodies
from edge.disconnect import while_connected
from edge.documenting import answers, takes
from edge.house import House
from edge.house_views import AdminModel, AdminModelList, GpuMemory, Overrides, SwapBody, UnloadBody

B = TypeVar("B", Overrides, UnloadBody, SwapBody)

_encode = msgspec.json.Encoder().encode
_overrides = msgspec.json.Decoder(Overrides)
_unload = msgspec.json.Decoder(UnloadBody)
_swap = msgspec.json.Decoder(SwapBody)


class AdminRoutes:
    """Adds them to an application."""

    def __init__(self, house: House, calls: AdminCalls, bodies: Bodies) -> None:
        self._house, self._calls, self._bodies = house, calls, bodies

    def add_to(self, app: FastAPI) -> None:
        """All of them, closed to whoever is not on this machine."""
        router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(check_local)])
        self._add_views(router)
        self._add_moves(router)
        self._add_swap(router)
        app.include_router(router)

    def _add_views(self, router: APIRouter) -> None:
        @router.get(
            "/models",
            summary="List the configured models with all that is known of them",
            responses=answers(AdminModelList, "One row a model.", 403, 503),
        )
        async def list_configured_models() -> Response:
            return _json(await self._house.models())

        @router.get(
            "/gpu-memory",
            summary="See what the device has, and what each model takes",
            responses=answers(GpuMemory, "Memory in MiB.", 403, 503),
        )
        async def get_gpu_memory() -> Response:
            return _json(await self._house.memory())

    def _add_moves(self, router: APIRouter) -> None:
        @router.post(
            "/models/{name}/load",
            summary="Load a model",
            description="With `overrides`, they replace former ones first. What is loaded "
            "already stays as it is: unload it before.",
            responses=answers(AdminModel, "It is loaded.", *_CHANGES),
            openapi_extra=takes(Overrides, required=False),
        )
        async def load_model(name: str, request: Request) -> Response:
            body = await self._body(request, _overrides, Overrides())
            if body.overrides is not None:
                await self._calls.override(name, body.overrides)
            return await self._done(request, name, self._calls.load(name))

        @router.post(
            "/models/{name}/unload",
            summary="Unload a model",
            responses=answers(AdminModel, "Its memory is back.", *_CHANGES),
            openapi_extra=takes(UnloadBody, required=False),
        )
        async def unload_model(name: str, request: Request) -> Response:
            body = await self._body(request, _unload, UnloadBody())
            return await self._done(request, name, self._calls.unload(name, body))

    def _add_swap(self, router: APIRouter) -> None:
        @router.post(
            "/models/{name}/swap",
            summary="Put another file in place of a model's",
            description="What runs finishes first. When the new file cannot be loaded, the former "
            "one serves again. A caller that leaves gives the swap up.",
            responses=answers(AdminModel, "The new file serves.", *_CHANGES),
            openapi_extra=takes(SwapBody),
        )
        async def swap_model(name: str, request: Request) -> Response:
            body = await self._body(request, _swap, None)
            return await self._done(request, name, self._calls.swap(name, body))

    async def _body(
        self, request: Request, decoder: msgspec.json.Decoder[B], default: B | None
    ) -> B:
        with self._bodies.room() as room:
            raw = await room.read(request)
            if not raw and default is not None:
                return default
            return json_body.decode(decoder, raw)

    async def _done(self, request: Request, name: str, work: Coroutine[Any, Any, None]) -> Response:
        await while_connected(request.receive, work)
        return _json(await self._house.model(name))


_CHANGES = (400, 403, 404, 409, 413, 501, 503)


def _json(value: Any) -> Response:
    return Response(_encode(value), media_type="application/json")
