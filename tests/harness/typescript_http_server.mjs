// A server of the TypeScript SDK over HTTP: /mcp (sessions; streams that can be resumed) and /sse (2024-11-05).
// Prints its port; ends with its stdin.
import { randomUUID } from "node:crypto";
import express from "express";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const ran = [];

function makeServer() {
  const server = new McpServer({ name: "typescript", version: "1" }, { capabilities: { logging: {} } });
  const text = (text) => ({ content: [{ type: "text", text }] });
  server.registerTool("echo", { inputSchema: { text: z.string() } }, async ({ text: said }) => {
    ran.push(said);
    return text(said);
  });
  server.registerTool("what_ran", { inputSchema: {} }, async () => text(JSON.stringify(ran)));
  server.registerTool("headers", { inputSchema: {} }, async (_, extra) => text(JSON.stringify(extra.requestInfo.headers)));
  server.registerTool("ask", { inputSchema: {} }, async (_, extra) => {
    const answer = await server.server.elicitInput(
      { message: "Which colour?", requestedSchema: { type: "object", properties: { colour: { type: "string" } } } },
      { relatedRequestId: extra.requestId },
    );
    return text(answer.content.colour);
  });
  server.registerTool("cut", { inputSchema: {} }, async (_, extra) => {
    extra.closeSSEStream?.();
    await new Promise((resolve) => setTimeout(resolve, 50));
    return text(extra.closeSSEStream ? "after the cut" : "never cut");
  });
  return server;
}

class Kept {
  events = [];
  async storeEvent(stream, message) {
    this.events.push([stream, message]);
    return String(this.events.length - 1);
  }
  async getStreamIdForEventId(id) {
    return this.events[Number(id)]?.[0];
  }
  async replayEventsAfter(last, { send }) {
    const [stream] = this.events[Number(last)];
    for (const [number, [of, message]] of this.events.entries()) {
      if (number > Number(last) && of === stream && Object.keys(message).length) await send(String(number), message);
    }
    return stream;
  }
}

const app = express();
const sessions = new Map();
const old = new Map();

app.all("/mcp", express.json(), async (request, response) => {
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport) {
    if (!isInitializeRequest(request.body)) {
      const status = request.headers["mcp-session-id"] ? 404 : 400;
      const error = { code: -32000, message: "Session not found" };
      response.status(status).json({ jsonrpc: "2.0", id: null, error });
      return;
    }
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: "json" in request.query,
      eventStore: new Kept(),
      retryInterval: 50,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response, request.body);
});
app.post("/forget", (_, response) => {
  sessions.clear();
  response.end();
});
app.get("/sse", async (_, response) => {
  const transport = new SSEServerTransport("/messages", response);
  old.set(transport.sessionId, transport);
  await makeServer().connect(transport);
});
app.post("/messages", async (request, response) => old.get(request.query.sessionId).handlePostMessage(request, response));

const listening = app.listen(0, "127.0.0.1", () => console.log(listening.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
