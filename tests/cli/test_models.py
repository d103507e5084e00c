"""`hookline models`: the providers that a model's name may begin with."""

from __future__ import annotations

import json

import pytest

from hookline.cli import main
from hookline.models import resolve_model
from hookline.providers.presets import OWN, PRESETS


def test_every_prefix_is_listed_with_its_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-secret")
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    lines = {line.split(":")[0]: line for line in out.splitlines()}
    assert list(lines) == [*OWN, *PRESETS]
    assert "✓ GROQ_API_KEY" in lines["groq"]
    assert "✓" not in lines["mistral"]
    assert "gsk-secret" not in out


def test_the_list_is_json_too_and_each_of_its_prefixes_makes_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["prefix"] for row in rows] == [*OWN, *PRESETS]
    for row in rows:
        assert resolve_model(f"{row['prefix']}:some-model").stream
