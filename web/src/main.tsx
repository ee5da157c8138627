// The page: where one is, the keys, and whether the daemon is there.
import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { address, follow, go, place, set } from "./address";
import type { Session } from "./api.gen";
import { ask, lockedOut } from "./ask";
import { Call } from "./call";
import { Compare } from "./compare";
import { fleet } from "./fleet";
import { Hints } from "./hints";
import { Live } from "./live";
import { Overview } from "./overview";
import { Policy } from "./policy";
import { heldRun, inFile } from "./record";
import { Run } from "./run";
import { Runs } from "./runs";
import { Trouble } from "./parts";
import { state, Stream, why } from "./stream";
import { clock, oneLine } from "./text";
import { Tools } from "./tools";

const helping = signal(false);

const KEYS: [string, string][] = [
  ["?", "this list"],
  ["g then l", "live"],
  ["g then o", "overview"],
  ["g then r", "runs"],
  ["g then p", "policy"],
  ["g then t", "tools"],
  ["g then h", "hints"],
  ["/", "filter"],
  ["p", "pause, or jump to now"],
  ["j, ↓ and k, ↑", "next and previous row"],
  ["Page Up, Page Down, Home, End", "further"],
  ["Enter", "open the row"],
  ["c", "in the list of runs: mark the row; two that are marked are compared"],
  ["Backspace", "back"],
  ["+, −, 0, ←, →", "in a timeline: zoom, whole, move"],
  ["Escape", "close this, leave a field"],
];

/** `whole`: what it shows is told by its whole address, so that another address is another surface. `still`: it follows
 * nothing by itself. `machine`: only a machine itself knows it, and over a fleet there is none. */
type Surface = { name: string; show: () => preact.JSX.Element; key?: string; whole?: boolean; still?: boolean; machine?: boolean };

const SURFACES: Record<string, Surface> = {
  "/": { name: "Live", show: Live, key: "l" },
  "/overview": { name: "Overview", show: Overview, key: "o", still: true },
  "/runs": { name: "Runs", show: Runs, key: "r" },
  "/run": { name: "Run", show: Run, whole: true },
  "/call": { name: "Call", show: Call, whole: true },
  "/compare": { name: "Compare", show: Compare, still: true },
  "/policy": { name: "Policy", show: Policy, key: "p", still: true, machine: true },
  "/tools": { name: "Tools", show: Tools, key: "t", still: true, machine: true },
  "/hints": { name: "Hints", show: Hints, key: "h", still: true, machine: true },
};

const offered = (surface: Surface): boolean => !fleet.value || !surface.machine;

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
  const surface = after === "g" && !inFile && Object.keys(SURFACES).find((one) => SURFACES[one]!.key === event.key && offered(SURFACES[one]!));
  if (surface) go(surface);
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
  useLayoutEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="keys" onClose={() => (helping.value = false)}>
      <h2 id="keys">Keys</h2>
      <table>
        <tbody>
          {KEYS.filter(([key]) => Object.values(SURFACES).every((one) => offered(one) || key !== `g then ${one.key}`)).map(([key, what]) => (
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

/** Where a file came from, and that nobody can be asked. */
function FromFile() {
  const [told, setTold] = useState("");
  useEffect(() => {
    heldRun().then(
      (held) => {
        if (!place.value.words.has("run")) go(address("/run", { run: held.run.run_id }), true);
        setTold(`Written ${clock(held.written_at)} by Subluminal ${held.version}`);
      },
      () => setTold("This file is damaged"),
    );
  }, []);
  return <span class="state">{told}</span>;
}

const SAID = { live: "● live", connecting: "connecting" };
const away = (): string => (fleet.value ? "○ no answer" : "○ no daemon");

const Elsewhere = ({ name }: { name: string }) => (
  <main class="surface">
    <h1 class="sr">{name}</h1>
    <Trouble text="Over a fleet this is not told: it is known to the machine itself. Run sub ui there." />
  </main>
);

function Page() {
  const { path, words } = place.value;
  const surface = SURFACES[path] ?? SURFACES["/"]!;
  useEffect(() => {
    document.title = `${surface.name} · Subluminal`;
  }, [surface]);
  useEffect(() => {
    if (!surface.still) return;
    // An open page keeps the daemon, and shows whether it is there: it follows a run that nobody has.
    const presence = new Stream(new URLSearchParams({ run_id: "none" }), () => undefined, () => undefined);
    return () => presence.close();
  }, [surface.still]);
  const here = (to: string) => (path === to ? { "aria-current": "page" as const } : {});
  return (
    <div class="page" onClick={follow}>
      <header>
        <a class="mark" href={inFile ? "/run" : "/"}>Subluminal</a>
        <nav aria-label="Surfaces">
          {!inFile &&
            Object.entries(SURFACES)
              .filter(([, one]) => one.key && offered(one))
              .map(([to, one]) => <a href={to} {...here(to)}>{one.name}</a>)}
        </nav>
        {fleet.value && <span class="fleet" title={`The record of a fleet, as ${fleet.value} tells it`}>fleet <bdi>{oneLine(fleet.value.replace(/^https?:\/\//, ""))}</bdi></span>}
        {state.value === "file" ? <FromFile /> : <span class={`state ${state.value}`} role="status">{state.value === "away" ? away() : SAID[state.value]}</span>}
        <button aria-label="Keys" onClick={() => (helping.value = true)}>?</button>
      </header>
      {lockedOut.value && (
        <p class="trouble" role="alert">{fleet.value ? "What serves this page" : "The ledger daemon"} was started anew and does not know this page. What is shown stays; run <code>sub ui{fleet.value && " --fleet"}</code> to go on.</p>
      )}
      {why.value && <Trouble text={`${why.value} What is shown stays; it goes on by itself.`} />}
      {(!inFile || words.has("run")) && (offered(surface) ? <surface.show key={surface.whole ? `${path}?${words}` : path} /> : <Elsewhere name={surface.name} />)}
      {helping.value && <Help />}
    </div>
  );
}

addEventListener("keydown", onKey);
// What there is to show depends on whose record it is; a page that is not let in, or has nobody to ask, says so itself.
void ask<Session>("/v1/session")
  .then((told) => (fleet.value = told.fleet ?? ""))
  .catch(() => undefined)
  .then(() => render(<Page />, document.getElementById("page")!));
