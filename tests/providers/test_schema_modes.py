"""The schemas of answers, as the providers' own schema modes take them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from hookline._model.output import Form
from hookline.models import ModelRequest
from hookline.providers._adapter.schemas import closed, is_strict, mapped
from hookline.providers.anthropic import _request as _anthropic_request
from hookline.providers.openai import _request as _openai_request
from hookline.testing import ScriptedModel

NOBODY = ScriptedModel()


def test_a_schema_with_fields_that_may_be_left_out_is_not_strict() -> None:
    optional = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert not is_strict(optional)
    assert is_strict({**optional, "required": ["a"]})
    assert not is_strict({"type": "array", "items": optional})
    assert not is_strict({"type": "object", "additionalProperties": {"type": "string"}})
    assert closed({"type": "object", "additionalProperties": {"type": "string"}}) == {
        "type": "object",
        "additionalProperties": {"type": "string"},
    }


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
    *(Outer, Pet, Loose, Bounds, dict[str, int], tuple[int, str], set[int], bytes, Any),
    Annotated[str, msgspec.Meta(max_length=5)],
]


@pytest.mark.parametrize("kind", [*PLAIN, *DEMANDING], ids=str)
def test_openais_strict_mode_gets_only_the_schemas_that_it_takes(kind: Any) -> None:
    """It refuses the request for any other."""
    request = ModelRequest(model=NOBODY, messages=(), output=Form(kind).schema)
    form = _openai_request.request_body("m", request)["text"]["format"]
    assert form["strict"] == (kind in PLAIN)


def keywords(schema: Any) -> set[str]:
    """The keywords of a schema, with the fields' names left out."""
    found: set[str] = set()

    def look(each: dict[str, Any]) -> dict[str, Any]:
        found.update(each)
        return each

    mapped(schema, look)
    return found


@pytest.mark.parametrize("kind", [*PLAIN, Outer, Pet, Loose, Bounds, set[int], bytes], ids=str)
def test_anthropics_schema_mode_gets_the_keywords_that_its_sdk_would_send(kind: Any) -> None:
    if kind is Node:
        return
    output = Form(kind).schema
    assert output is not None
    transform = pytest.importorskip("anthropic.lib._parse._transform").transform_schema
    theirs = transform(json.loads(msgspec.json.encode(output.schema)))
    body = _anthropic_request.request_body(
        "m", ModelRequest(model=NOBODY, messages=(), output=output)
    )
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
def test_a_schema_that_anthropics_mode_cannot_express_is_described_in_words(kind: Any) -> None:
    output = Form(kind).schema
    assert output is not None
    request = ModelRequest(model=NOBODY, messages=(), system="Be brief.", output=output)
    body = _anthropic_request.request_body("m", request)
    assert "output_config" not in body
    assert body["system"] == request.prompted().system
    assert body["system"].startswith("Be brief.")
