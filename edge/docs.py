"""/docs: the routes to be read and tried in a browser, on machines without the internet too.

The page's script and style come out of an installed package that carries Swagger UI; nothing of
that package runs. What the page shows is said in `openapi`.
"""

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, Response

DOCS_PATH = "/docs"
OPENAPI_PATH = "/openapi.json"

_SCRIPT, _STYLE = "swagger-ui-bundle.js", "swagger-ui.css"
_MEDIA_TYPES = {_SCRIPT: "text/javascript", _STYLE: "text/css"}
DOCS_FILES = tuple(f"{DOCS_PATH}/{name}" for name in _MEDIA_TYPES)
"""What the page loads."""
_FOLDER = Path(str(files("fastapi_offline"))) / "static"
# No icon to fetch, and no badge, for which a validator elsewhere would be asked.
_NO_ICON = "data:,"
_PARAMETERS = {"validatorUrl": None}


def add_docs(app: FastAPI) -> None:
    """Give `app` the page and what it loads."""
    page = get_swagger_ui_html(
        openapi_url=OPENAPI_PATH.removeprefix("/"),
        title="Cohabit",
        swagger_js_url=f"docs/{_SCRIPT}",
        swagger_css_url=f"docs/{_STYLE}",
        swagger_favicon_url=_NO_ICON,
        swagger_ui_parameters=_PARAMETERS,
    )

    @app.get(DOCS_PATH, include_in_schema=False)
    async def docs() -> Response:
        return page

    for name, media_type in _MEDIA_TYPES.items():
        _add_file(app, name, media_type)


def _add_file(app: FastAPI, name: str, media_type: str) -> None:
    @app.get(f"{DOCS_PATH}/{name}", include_in_schema=False)
    async def file() -> Response:
        return FileResponse(_FOLDER / name, media_type=media_type)
