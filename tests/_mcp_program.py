"""Servers that are programs, of several kinds of bad behaviour. `python _mcp_program.py KIND`"""

import json
import os
import signal
import subprocess
import sys
import time


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tell(notice):
    os.write(2, f"stubborn: {notice}\n".encode())


def tool(name, schema=None):
    return {"name": name, "inputSchema": schema or {"type": "object", "properties": {}}}


TOOLS = [
    tool("ok"), tool("huge"), tool("never"), tool("dies"), tool("noisy"), tool("rename"),
    tool("liar"), tool("bad", {"type": "object", "properties": {"a": {"type": "text"}}}),
    tool("many"), tool("wrong"),
    tool("remote", {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}),
]  # fmt: skip
TOOLS[6]["outputSchema"] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def call(id, name, token):
    if name in ("ok", "other"):
        send({"id": id, "result": text("fine")})
    elif name == "huge":
        send({"id": id, "result": text("x" * 50_000_000)})
    elif name == "many":
        send({"id": id, "result": {**text(""), "structuredContent": {"a": [[]] * 500_000}}})
    elif name == "wrong":
        wrong = {"level": 4711, "data": "a-secret-4711"}
        send({"method": "notifications/message", "params": wrong})
        send({"id": id, "result": {"content": "a-secret-4711"}})
    elif name == "dies":
        sys.exit(3)
    elif name == "noisy":
        for n in range(1_000):
            params = {"progressToken": token, "progress": n + 1, "total": 1_000}
            send({"method": "notifications/progress", "params": params})
        send({"id": id, "result": text("noise")})
    elif name == "rename":
        TOOLS[0] = tool("other")
        send({"method": "notifications/tools/list_changed"})
        send({"id": id, "result": text("renamed")})
    elif name == "liar":
        send({"id": id, "result": {**text("?"), "structuredContent": {"n": "many"}}})


def main(kind):
    if kind == "exits":
        licence = os.environ.get("LICENCE")
        print(f"no licence for {licence}" if licence else "no licence", file=sys.stderr)
        sys.exit(7)
    if kind == "silent":
        time.sleep(600)
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "600"])  # which inherits that
        signal.signal(signal.SIGTERM, lambda *_: tell("SIGTERM"))
    if kind == "talks":
        print("Welcome to my server!")
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        if method == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": kind, "version": "1"},
            }
            send({"id": id, "result": result})
        elif method == "tools/list":
            send({"id": id, "result": {"tools": TOOLS}})
        elif method == "tools/call":
            meta = message["params"].get("_meta") or {}
            call(id, message["params"]["name"], meta.get("progressToken"))
        elif id is not None:
            send({"id": id, "error": {"code": -32601, "message": "no such method"}})
        if kind == "talks":
            print("debug: somebody has forgotten a print")
    if kind == "stubborn":
        tell("its input is closed")
        time.sleep(600)


main(sys.argv[1])
