// Fetches with undici, which is Node's fetch, through a proxy. A JSON text a line in; `null` out when it is done.
import readline from "node:readline";
import { ProxyAgent, fetch } from "undici";

const dispatcher = new ProxyAgent({ uri: process.argv[2], proxyTunnel: false });
for await (const line of readline.createInterface({ input: process.stdin })) {
  try {
    await fetch(JSON.parse(line), { dispatcher, redirect: "manual", signal: AbortSignal.timeout(3000) });
  } catch {}
  console.log("null");
}
process.exit(0);
