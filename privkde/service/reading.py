"""Reading requests: strict JSON, checked by the library's own rules and described by its own declarations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Body, Request, Response
from fastapi.routing import APIRoute
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from accounting.fields import read
from privkde.service.problems import MALFORMED, TOO_LARGE, Problem
from privkde.storage.json_text import MalformedJsonError, parsed_json

MOST_VALUES = 10_000
"""Values in a request; a plan has about two hundred. While one is read, everybody else waits."""
FEW_VALUES, FEW_BYTES = 1_000, 1 << 16
"""Of a request that is read at once; larger ones take turns, with everybody else between."""
LARGE_EVERY = 0.05
"""Seconds from one such turn to the next: reading the largest takes less than half of it."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Marks a body that the library reads: its declared fields are the schema, its errors are the answer."""

    record: Any

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic describes the record; `read` makes it."""
        return core_schema.no_info_plain_validator_function(
            lambda values: read(self.record, values), json_schema_input_schema=handler.generate_schema(self.record)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Say that no other names are taken."""
        described = handler(schema)
        handler.resolve_ref_schema(described)["additionalProperties"] = False
        return described


@dataclass(frozen=True, slots=True)
class DescribedBy:
    """Marks a value that has the shape of a document, which the library checks by itself."""

    document: Any

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The document's schema."""
        return handler(TypeAdapter(self.document).core_schema)


def example(values: Any) -> Any:
    """A body with one example in the OpenAPI document; tests send them all."""
    return Body(openapi_examples={"example": {"value": values}})


class StrictRequest(Request):
    """A request whose JSON is read by `json_object`."""

    async def json(self) -> Any:
        """The JSON object in the body, or a `Problem`."""
        body = await self.body()
        values = sum(map(body.count, (b",", b"[", b"{")))  # before anything is made of it
        if values > MOST_VALUES:
            raise Problem(TOO_LARGE, f"a request may hold {MOST_VALUES:,} values at most; send several.")
        if values <= FEW_VALUES and len(body) <= FEW_BYTES:
            return json_object(body)
        turns: asyncio.Lock = self.app.state.large_bodies
        await turns.acquire()
        asyncio.get_running_loop().call_later(LARGE_EVERY, turns.release)
        return json_object(body)


class StrictRoute(APIRoute):
    """A route that reads its body strictly."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Handle a `StrictRequest` in place of the request."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            response: Response = await handle(StrictRequest(request.scope, request.receive))
            return response

        return strictly


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a text, or a `Problem`."""
    try:
        value = parsed_json(body)
    except MalformedJsonError as error:
        raise Problem(MALFORMED, f"send one JSON object in UTF-8: {error}") from None
    if not isinstance(value, dict):
        raise Problem(MALFORMED, f"a JSON object is needed, not {type(value).__name__}.")
    return value
