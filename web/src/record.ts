// A run that stands in the page itself: a file that somebody was sent, without a daemon to ask.
import type { CallPage, CallRow, Session, Timeline, WholeCall, WholeRun } from "./api.gen";
import { Refused } from "./ask";

type Held = { version: string; written_at: string; run: WholeRun; timeline: Timeline; calls: WholeCall[] };

const element = document.getElementById("record");

export const inFile = element !== null;

let held: Promise<Held> | null = null;

async function unpack(): Promise<Held> {
  const packed = Uint8Array.from(atob(element!.textContent!.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as Held;
}

export const heldRun = (): Promise<Held> => (held ??= unpack());

const named = (call: { call_id: string; shim_id: string | null }, id: string, shim: string | null): boolean =>
  call.call_id === id && (shim === null || call.shim_id === shim);

/** What the daemon would answer, out of the file. */
export async function fromFile(path: string): Promise<unknown> {
  const { run, timeline, calls, version } = await heldRun();
  const { pathname, searchParams } = new URL(path, "file:///");
  const [, , kind, id = "", more] = pathname.split("/").map(decodeURIComponent);
  if (kind === "session") return { csrf: "", version, home: "", directory: "", now_ms: Date.now() } satisfies Session;
  if (kind === "runs" && id === run.run_id) return more === "timeline" ? timeline : run;
  if (kind === "calls" && id && !more) {
    const found = calls.find((call) => named(call, id, searchParams.get("shim_id")));
    if (found) return found;
    throw new Refused(`There is no call ${id} in this file.`, 404);
  }
  if (kind === "calls" && !id) {
    const hash = searchParams.get("args_hash");
    const rows = calls.filter((call) => call.args_hash === hash).slice(0, 11) as unknown as CallRow[];
    return { rows, next_cursor: null } satisfies CallPage;
  }
  throw new Refused("That is not in this file: ask where the run was recorded.", 404);
}
