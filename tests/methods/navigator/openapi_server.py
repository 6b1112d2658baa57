"""A server of an OpenAPI document by other implementations; each answer says what arrived.

``python openapi_server.py FILE PORT`` serves Swagger 2.0 with connexion and OpenAPI 3 with openapi-core. Both find the
operation, check its parameters and its body against the document and convert them; what they refuse is answered by 400.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import uvicorn


def shown(value: Any) -> Any:
    """Return a value as JSON takes it."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {key: shown(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(inner) for inner in value]
    return value


async def form_part(part: Any) -> Any:
    """Return a field of a form; a file as its name, type and content."""
    return part if isinstance(part, str) else [part.filename, part.content_type, await part.read()]


def openapi_3(file: Path) -> Any:
    from openapi_core import OpenAPI
    from openapi_core.contrib.starlette import StarletteOpenAPIRequest
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    served = OpenAPI.from_file_path(str(file))

    async def answer(request: Request) -> JSONResponse:
        result = served.unmarshal_request(StarletteOpenAPIRequest(request, await request.body()))
        if result.errors:
            said = [f"{error!r} {error.__cause__!r}" for error in result.errors]
            return JSONResponse({"errors": said}, status_code=400)
        places = {place: dict(getattr(result.parameters, place)) for place in ("path", "query", "header", "cookie")}
        arrived = {place: values for place, values in places.items() if values}
        kind = request.headers.get("content-type", "").partition(";")[0]
        body = {} if result.body is None else {"body": result.body}
        if kind == "multipart/form-data":  # openapi-core leaves out names and types of files
            body = {"body": {name: await form_part(part) for name, part in (await request.form()).items()}}
        elif kind in ("application/xml", "application/octet-stream"):  # of which it makes nothing
            body = {"body": await request.body()}
        return JSONResponse(shown({**arrived, **body, **({"type": kind} if kind else {})}))

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", answer, methods=methods)])


def swagger_2(file: Path) -> Any:
    import connexion

    async def answer(**arguments: Any) -> Any:
        arrived: dict[str, Any] = {}
        for name, value in arguments.items():
            arrived[name] = shown(await form_part(value)) if hasattr(value, "filename") else value
        headers = connexion.request.headers
        if "X-Trace" in headers:  # it hands no headers to functions
            arrived["X-Trace"] = headers["X-Trace"]
        return {**arrived, "type": headers.get("content-type", "").partition(";")[0]}

    app = connexion.AsyncApp("served", specification_dir=file.parent)
    resolver = connexion.Resolver(lambda name: answer)
    app.add_api(file.name, resolver=resolver, strict_validation=True, validate_responses=False)
    return app


if __name__ == "__main__":
    served_file = Path(sys.argv[1])
    is_old = "swagger" in json.loads(served_file.read_text())
    application = swagger_2(served_file) if is_old else openapi_3(served_file)
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", ws="none")
