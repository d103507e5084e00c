// The client of the TypeScript SDK, as a user of a served agent: list, a call with progress, one that
// is cancelled, and one that asks. `node client.mjs URL REVISION`
const [url, revision] = process.argv.slice(2);
const info = { name: "test", version: "1" };
const capabilities = { elicitation: {} };
const answer = async (request) => {
  console.log("asked", JSON.stringify(request.params.message));
  return { action: "accept", content: { approve: true } };
};

async function handshake() {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
  const client = new Client(info, { capabilities });
  client.setRequestHandler(ElicitRequestSchema, answer);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return { client, call: (request, options) => client.callTool(request, undefined, options) };
}

async function modern() {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const client = new Client(info, { capabilities, versionNegotiation: { mode: { pin: revision } } });
  client.setRequestHandler("elicitation/create", answer);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return { client, call: (request, options) => client.callTool(request, options) };
}

const { client, call } = await (revision === "2025-11-25" ? handshake() : modern());
const chat = (message, options = {}) => call({ name: "chat", arguments: { message } }, options);

const { tools } = await client.listTools();
console.log("tools", tools.map((tool) => tool.name).join());

const shown = [];
const said = await chat("hi", { onprogress: (progress) => shown.push(progress.message) });
console.log("progress", shown.join(""));
console.log("said", said.content[0].text);

const leaving = new AbortController();
const left = { signal: leaving.signal, onprogress: () => leaving.abort("enough") };
await chat("wait", left).then(() => console.log("not cancelled"), () => console.log("cancelled"));

const paid = await chat("pay");
console.log("said", paid.content[0].text);
await client.close();
