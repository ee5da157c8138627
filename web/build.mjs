// Builds the page into src/subluminal/ui. The same sources give the same bytes, wherever they lie: no map, no hash, no date.
import { build } from "esbuild";
import { copyFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = process.argv[2] ?? fileURLToPath(new URL("../src/subluminal/ui/", import.meta.url));
const page = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
};
await build({ ...page, entryPoints: ["src/main.tsx"], outfile: `${out}/app.js` });
await build({ ...page, entryPoints: ["src/landing.ts"], outfile: `${out}/landing.js` });
await build({ ...page, entryPoints: ["src/app.css"], outfile: `${out}/app.css` });
for (const name of ["index.html", "landing.html", "icon.svg"]) await copyFile(`${here}src/${name}`, `${out}/${name}`);
