"""The shape of a mapping's file: its keys and words. `files` reads it with places; `schema/http-mapping.json` is for
editors."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
BodyKind = Literal["json", "none"]
Unmapped = Literal["refuse", "pass"]
Name = Annotated[str, Meta(min_length=1)]
MAX_OPERATIONS = 1_000


class OperationShape(Struct, kw_only=True, forbid_unknown_fields=True):
    """One request that is one tool."""

    tool: Name
    method: Method
    path: Annotated[str, Meta(pattern="^/", description="with parameters: {name}, {name:int}, {name...} at the end")]
    query: Annotated[list[Name] | Name | UnsetType, Meta(description="names that the query may have; absent: any")] = (
        UNSET
    )
    body: BodyKind | UnsetType = UNSET
    risk_class: list[Name] | Name | UnsetType = UNSET


class MappingShape(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which requests of an HTTP API are which tools."""

    server: Annotated[str, Meta(min_length=1, description="the name in policies and events")]
    upstream: Annotated[str, Meta(pattern="^https?://", description="the API's address; paths begin behind its own")]
    operations: Annotated[list[OperationShape], Meta(min_length=1, max_length=MAX_OPERATIONS)]
    unmapped: Unmapped | UnsetType = UNSET
