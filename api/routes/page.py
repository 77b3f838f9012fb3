"""The page of `/ui` and its files. They need no token: they contain no data, and the page calls
`/v1` with the caller's token.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api.http.admission import Context, known_parameters
from api.http.page_files import PageFile

router = APIRouter(prefix="/ui", dependencies=[Depends(known_parameters)], include_in_schema=False)

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}


@router.get("")
@router.get("/")
async def page(request: Request, context: Context) -> Response:
    """The page itself; a browser checks each time whether it has changed."""
    return _answer(request, await context.page.index(), "no-cache")


@router.get("/assets/{name}")
async def asset(request: Request, context: Context, name: str) -> Response:
    """A file with a digest of its content in its name."""
    return _answer(request, await context.page.asset(name), "public, max-age=31536000, immutable")


def _answer(request: Request, file: PageFile, cache: str) -> Response:
    headers = {**PAGE_HEADERS, "Cache-Control": cache, "ETag": file.tag}
    known = request.headers.get("if-none-match", "")
    if file.tag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.plain, media_type=file.media_type, headers=headers)
    return Response(
        file.compressed,
        media_type=file.media_type,
        headers={**headers, "Content-Encoding": "gzip"},
    )
