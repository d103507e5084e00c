// The client of the TypeScript SDK, as a user of a served agent: list, and a call with progress.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const { tools } = await client.listTools();
console.log("tools", tools.map((tool) => tool.name).join());
const result = await client.callTool(
  { name: "chat", arguments: { message: "hi" } },
  undefined,
  { onprogress: (progress) => console.log("progress", progress.message) },
);
console.log(result.content[0].text);
await client.close();
