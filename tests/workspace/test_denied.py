"""Denied files: a rule holds by every name, in lists, in searches, and in the sandbox."""

import os

import pytest

from hookline.workspace import Rules


@pytest.mark.parametrize(
    "path", [".env", ".ENV", "link", "sub/../.env", "/workspace/.env", "sub/.env.local", "./.env"]
)
async def test_a_denied_file_is_not_read_by_any_name(hands, folder, path):
    (folder / "sub").mkdir()
    for name in (".env", ".ENV", "sub/.env.local"):
        (folder / name).write_text("SECRET")
    os.symlink(".env", folder / "link")
    hands = hands(rules=Rules(deny=["read(**/.env*)"]))
    assert "SECRET" not in (text := await hands.error("read", path=path))
    assert "Denied" in text
    assert "Denied" in await hands.error("write", path=path, text="x")
    assert "SECRET" not in (await hands("grep", pattern="SECRET|.", path=path)).text


async def test_a_denied_file_is_in_no_list(hands, folder, sandbox):
    (folder / ".env").write_text("SECRET")
    (folder / "a.txt").write_text("SECRET santa")
    os.symlink(".env", folder / "link")
    hands = hands(rules=Rules(deny=["read(.env)"]))
    assert ".env" not in await hands.text("list")
    assert ".env" not in await hands.text("glob", pattern="*")
    assert await hands.text("grep", pattern="SECRET") == "a.txt:1:SECRET santa"
    text = await hands.text(
        "bash", command="cat .env link; cp .env b; cat b; ls -l .env; grep -r SECRET ."
    )
    assert "SECRET" not in text.replace("SECRET santa", "")


async def test_a_rule_that_asks_about_reading_asks(hands, folder):
    asked = []

    def approver(request, run):
        from hookline import Deny

        asked.append(request.details)
        return Deny("no")

    (folder / "a.key").write_text("x")
    hands = hands(rules=Rules(ask=["read(*.key)"]), approver=approver)
    await hands.error("read", path="a.key")
    assert asked == [({"kind": "path", "text": "a.key"},)]


async def test_a_missing_file_has_a_hint_but_not_the_name_of_a_denied_one(hands, folder):
    (folder / "config.py").write_text("")
    (folder / "secret.py").write_text("")
    hands = hands(rules=Rules(deny=["read(secret*)"]))
    assert "config.py" in await hands.error("read", path="confg.py")
    assert "secret.py" not in await hands.error("read", path="secre.py")
