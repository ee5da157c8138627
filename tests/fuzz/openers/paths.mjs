// Opens paths as servers written for Node do. A JSON array [mode, op, path] a line in; what the file holds, or null, out.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";

const ways = {
  open: (text) => text,
  resolve: (text) => path.resolve(text),
  home: (text) => path.resolve(text.startsWith("~/") || text === "~" ? path.join(os.homedir(), text.slice(1)) : text),
  decode: (text) => path.resolve(decodeURIComponent(text)),
  url: (text) => fileURLToPath(text),
  cut: (text) => path.resolve(text.replace(/^file:\/\//i, "")),
  trim: (text) => path.resolve(text.trim()),
  turned: (text) => path.resolve(text.replace(/\\/g, "/")),
  normal: (text) => path.resolve(text.normalize("NFC")),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [mode, op, text] = JSON.parse(line);
  let found = null;
  try {
    const opened = ways[mode](text);
    if (op === "write") fs.writeFileSync(opened, "written");
    else found = fs.readFileSync(opened, "utf8");
  } catch {}
  console.log(JSON.stringify(found));
}
