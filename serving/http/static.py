"""The files of the pages: styles, scripts, and the vendored chart library.

The files are a short list, read once; no other file is served.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header, Response

from kappa.serving.http.gate import STATIC
from kappa.serving.http.page.render import HEADERS
from kappa.serving.http.problem import HttpError
from kappa.serving.http.rights import open_to_all

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOLDER = files("kappa.serving.http.page") / "static"
_FILES = {
    f"{folder}{each.name}": each.read_bytes()
    for folder, there in (("", _FOLDER), ("vendor/", _FOLDER / "vendor"))
    for each in there.iterdir()
    if each.name.rpartition(".")[2] in _TYPES
}
_TAGS = {name: f'"{hashlib.sha256(content).hexdigest()[:16]}"' for name, content in _FILES.items()}

router = APIRouter(include_in_schema=False)


@router.get(f"{STATIC}{{name:path}}")
@open_to_all
async def static(name: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Answers with one of the files, or 304 if the browser's copy is current.

    Browsers check each time (`no-cache`).
    """
    if name not in _FILES:
        raise HttpError(
            404, f"there is no file {name[:80]}", hint="the pages name those that there are"
        )
    headers = {**HEADERS, "ETag": _TAGS[name], "Cache-Control": "no-cache"}
    if if_none_match == _TAGS[name]:
        return Response(status_code=304, headers=headers)
    return Response(_FILES[name], headers=headers, media_type=_TYPES[name.rpartition(".")[2]])
