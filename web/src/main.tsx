// The page: where one is, the keys, and whether the daemon is there.
import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { address, follow, go, place, set } from "./address";
import { lockedOut } from "./ask";
import { Call } from "./call";
import { Live } from "./live";
import { Run } from "./run";
import { Runs } from "./runs";
import { state } from "./stream";

const helping = signal(false);

const KEYS: [string, string][] = [
  ["?", "this list"],
  ["g then l", "live"],
  ["g then r", "runs"],
  ["/", "filter"],
  ["p", "pause, or jump to now"],
  ["j, ↓ and k, ↑", "next and previous row"],
  ["Page Up, Page Down, Home, End", "further"],
  ["Enter", "open the row"],
  ["Backspace", "back"],
  ["+, −, 0, ←, →", "in a timeline: zoom, whole, move"],
  ["Escape", "close this, leave a field"],
];

const SURFACES: Record<string, { name: string; show: () => preact.JSX.Element }> = {
  "/": { name: "Live", show: Live },
  "/runs": { name: "Runs", show: Runs },
  "/run": { name: "Run", show: Run },
  "/call": { name: "Call", show: Call },
};

let waits = "";

function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.key === "Escape") {
    helping.value = false;
    target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input[type=text], select, textarea")) return;
  const after = waits;
  waits = "";
  const { path, words } = place.value;
  if (after === "g" && event.key === "l") go("/");
  else if (after === "g" && event.key === "r") go("/runs");
  else if (event.key === "g") waits = "g";
  else if (event.key === "?") helping.value = !helping.value;
  else if (event.key === "/") document.querySelector<HTMLElement>(".filters input, .filters select")?.focus();
  else if (event.key === "p" && path === "/") go(address("/", set(words, "at", words.has("at") ? [] : [String(Date.now())])));
  else if (event.key === "Backspace") history.back();
  else if (["j", "k"].includes(event.key) && !target.closest(".list")) document.querySelector<HTMLElement>(".list .body")?.focus();
  else return;
  event.preventDefault();
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="keys" onClose={() => (helping.value = false)}>
      <h2 id="keys">Keys</h2>
      <table>
        <tbody>
          {KEYS.map(([key, what]) => (
            <tr>
              <th scope="row"><kbd>{key}</kbd></th>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <button onClick={() => (helping.value = false)}>Close</button>
    </dialog>
  );
}

function Page() {
  const { path } = place.value;
  const surface = SURFACES[path] ?? SURFACES["/"]!;
  useEffect(() => {
    document.title = `${surface.name} · Subluminal`;
  }, [surface]);
  const here = (to: string) => (path === to ? { "aria-current": "page" as const } : {});
  return (
    <div class="page" onClick={follow}>
      <header>
        <a class="mark" href="/">Subluminal</a>
        <nav aria-label="Surfaces">
          <a href="/" {...here("/")}>Live</a>
          <a href="/runs" {...here("/runs")}>Runs</a>
        </nav>
        <span class={`state ${state.value}`} role="status">{{ live: "● live", connecting: "connecting", away: "○ no daemon" }[state.value]}</span>
        <button aria-label="Keys" onClick={() => (helping.value = true)}>?</button>
      </header>
      {lockedOut.value && (
        <p class="trouble" role="alert">The ledger daemon was started anew and does not know this page. What is shown stays; run <code>sub ui</code> to go on.</p>
      )}
      <surface.show key={path === "/" || path === "/runs" ? path : location.search} />
      {helping.value && <Help />}
    </div>
  );
}

addEventListener("keydown", onKey);
render(<Page />, document.getElementById("page")!);
