// Fetches with undici, which is Node's fetch, through a proxy. A JSON text a line in; `null` out when it is done.
import readline from "node:readline";
import { ProxyAgent, fetch } from "undici";

// undici throws some refusals where nobody waits for them, and then its promise is never settled.
let refused = () => {};
process.on("uncaughtException", () => refused());
const dispatcher = new ProxyAgent({ uri: process.argv[2], proxyTunnel: false });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const thrown = new Promise((resolve) => (refused = resolve));
  try {
    const signal = AbortSignal.timeout(3000);
    await Promise.race([fetch(JSON.parse(line), { dispatcher, redirect: "manual", signal }), thrown]);
  } catch {}
  console.log("null");
}
process.exit(0);
