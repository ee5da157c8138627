// One JSON value a line in; a line out with what tools of the TypeScript SDK receive for it, by the type they ask for.
// A type that refuses the value is left out, and so is a number that JSON cannot say.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import * as zod4 from "zod";
import { z as zod3 } from "zod/v3";

const types = {};
for (const [version, z] of [["zod4", zod4], ["zod3", zod3]]) {
  types[`${version} boolean`] = z.boolean();
  types[`${version} number`] = z.number();
  types[`${version} string`] = z.string();
  types[`${version} coerce.boolean`] = z.coerce.boolean();
  types[`${version} coerce.number`] = z.coerce.number();
  types[`${version} coerce.bigint`] = z.coerce.bigint();
  types[`${version} coerce.string`] = z.coerce.string();
}
types["zod4 stringbool"] = zod4.stringbool();

const server = new McpServer({ name: "readings", version: "1" });
for (const [name, type] of Object.entries(types)) {
  server.registerTool(name.replaceAll(" ", "-"), { inputSchema: { value: type } }, ({ value }) => {
    const text = typeof value === "bigint" ? String(value) : JSON.stringify(value);
    return { content: [{ type: "text", text }] };
  });
}
const client = new Client({ name: "probe", version: "1" });
const [near, far] = InMemoryTransport.createLinkedPair();
await Promise.all([server.connect(far), client.connect(near)]);

for await (const line of createInterface({ input: process.stdin })) {
  const members = [];
  for (const name of Object.keys(types)) {
    const call = { name: name.replaceAll(" ", "-"), arguments: { value: JSON.parse(line) } };
    const result = await client.callTool(call).catch(() => ({ isError: true }));
    if (!result.isError && result.content[0].text !== "null") {
      members.push(`${JSON.stringify(name)}:${result.content[0].text}`);
    }
  }
  process.stdout.write(`{${members.join(",")}}\n`);
}
process.exit(0);
