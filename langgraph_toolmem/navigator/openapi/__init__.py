"""Tools from OpenAPI documents (3.0, 3.1) and Swagger 2.0, to plan with and to call.

`read_openapi` makes a `ToolSpec` of every operation, without network; `openapi_tools` makes LangChain tools that call
it. Parameters in path, query, header, cookie and form and the properties of a JSON body become the tool's parameters.
Effects follow HTTP: GET, HEAD, OPTIONS and TRACE read, DELETE destroys, the others change something. Credentials are no
parameters: `auth` fills them. The specs are given to a memory like other tools::

    ToolMemory(folder, tools=read_openapi("api.yaml")).plan("cancel the order")
    create_agent(model, openapi_tools("api.yaml", auth=token), middleware=...)

``documents``   loading, further files, references, self-contained schemas
``serialize``   values as texts of a request
``operations``  a tool for each operation: names, schemas and places of its parameters
``calls``       requests, and the part of the answer that the model reads
"""

from __future__ import annotations

from langgraph_toolmem.navigator.openapi.calls import openapi_tools
from langgraph_toolmem.navigator.openapi.operations import Operation, read_openapi, read_operations

__all__ = ["Operation", "openapi_tools", "read_openapi", "read_operations"]
