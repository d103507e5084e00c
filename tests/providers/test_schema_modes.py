"""The schemas of answers, as the providers' own schema modes take them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from tests._wires import wire

from hookline import Agent
from hookline.errors import HooklineError
from hookline.models import ModelRequest
from hookline.testing import ScriptedModel


async def request_for(kind: Any) -> ModelRequest:
    """The request for an answer of this kind."""
    model = ScriptedModel("none of this kind")
    with suppress(HooklineError):
        await Agent(model).chat("Hi.", output=kind, output_retries=0)
    return model.requests[0]


async def body_for(provider: Any, kind: Any, **options: Any) -> Any:
    """What a provider is sent for an answer of this kind."""
    async with wire(provider, "none of this kind") as (model, server):
        with suppress(HooklineError):
            await Agent(model, **options).chat("Hi.", output=kind, output_retries=0)
        return server.requests[0].json


class Inner(pydantic.BaseModel):
    a: int


class Outer(pydantic.BaseModel):
    inner: Inner = pydantic.Field(description="the inner one")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Pet(pydantic.BaseModel):
    pet: Cat | Dog = pydantic.Field(discriminator="kind")


class Loose(pydantic.BaseModel, extra="allow"):
    a: int


class Partial(TypedDict, total=False):
    a: str


@dataclass
class Node:
    kids: list[Node]


@dataclass
class Bounds:
    some: Annotated[list[int], msgspec.Meta(min_length=2, max_length=5)]
    one: Annotated[list[int], msgspec.Meta(min_length=1)]
    short: Annotated[str, msgspec.Meta(max_length=5)]
    price: Decimal
    day: date


PLAIN = [Cat, int, Literal["a", "b"], Node, date, Cat | Dog]
DEMANDING = [
    *(
        Partial,
        list[Partial],
        Outer,
        Pet,
        Loose,
        Bounds,
        dict[str, int],
        dict[str, str],
        tuple[int, str],
        set[int],
        bytes,
        Any,
    ),
    Annotated[str, msgspec.Meta(max_length=5)],
]


@pytest.mark.parametrize("kind", [*PLAIN, *DEMANDING], ids=str)
async def test_openais_strict_mode_gets_only_the_schemas_that_it_takes(kind: Any) -> None:
    """It refuses the request for any other."""
    form = (await body_for("openai", kind))["text"]["format"]
    assert form["strict"] == (kind in PLAIN)
    if kind == dict[str, str]:
        assert {"type": "object", "additionalProperties": {"type": "string"}} in nested(form)


def nested(value: Any) -> Iterator[Any]:
    """The objects of a schema, the outer ones first."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from nested(each)


def keywords(schema: dict[str, Any]) -> set[str]:
    """The keywords of a schema, with the fields' names left out."""
    found = set(schema)
    for key, value in schema.items():
        schemas = value.values() if key in ("properties", "$defs") else [value]
        for each in schemas:
            for inner in each if isinstance(each, list) else [each]:
                found |= keywords(inner) if isinstance(inner, dict) else set()
    return found


@pytest.mark.parametrize("kind", [*PLAIN, Outer, Pet, Loose, Bounds, set[int], bytes], ids=str)
async def test_anthropics_schema_mode_gets_the_keywords_that_its_sdk_would_send(kind: Any) -> None:
    if kind is Node:
        return
    pytest.importorskip("anthropic", minversion="2.7")  # the first that sends `const`
    output = (await request_for(kind)).output
    assert output is not None
    transform = pytest.importorskip("anthropic.lib._parse._transform").transform_schema
    theirs = transform(json.loads(msgspec.json.encode(output.schema)))
    body = await body_for("anthropic", kind)
    ours = body["output_config"]["format"]["schema"]
    assert "system" not in body
    assert keywords(ours) <= keywords(theirs) | {"default"}
    for each in (ours, theirs):
        assert '"additionalProperties": true' not in json.dumps(each)
    if kind is Bounds:
        fields = ours["properties"]
        assert fields["some"] == {"type": "array", "items": {"type": "integer"}}
        assert fields["one"] == {**fields["some"], "minItems": 1}
        assert (fields["short"], fields["price"]) == ({"type": "string"}, {"type": "string"})
        assert fields["day"] == {"type": "string", "format": "date"}
    if kind is Pet:
        refs = [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]
        assert ours["properties"]["pet"]["anyOf"] == refs


@pytest.mark.parametrize("kind", [Node, dict[str, int], tuple[int, str], Any], ids=str)
async def test_a_schema_that_anthropics_mode_cannot_express_is_described_in_words(
    kind: Any,
) -> None:
    request = (await request_for(kind)).replace(system="Be brief.")
    body = await body_for("anthropic", kind, system="Be brief.")
    assert "output_config" not in body
    assert body["system"] == request.prompted().system
    assert body["system"].startswith("Be brief.")
