// Questions to the daemon. An answer that is no answer is a sentence, never an exception that nobody shows.
import { signal } from "@preact/signals";
import { fleet } from "./fleet";
import { fromFile, inFile } from "./record";

export class Refused extends Error {
  constructor(sentence: string, readonly status: number) {
    super(sentence);
  }
}

/** True: the daemon does not know this page any more. */
export const lockedOut = signal(false);

export const ask = <Answer>(path: string, stop?: AbortSignal): Promise<Answer> =>
  inFile
    ? (fromFile(path) as Promise<Answer>)
    : answered<Answer>(() => fetch(path, { cache: "no-store", ...(stop ? { signal: stop } : {}) }), stop);

export async function answered<Answer>(asked: () => Promise<Response>, stop?: AbortSignal): Promise<Answer> {
  let answer: Response;
  try {
    answer = await asked();
  } catch (error) {
    if (stop?.aborted) throw error;
    throw new Refused(fleet.value ? "What serves this page has ended: start `sub ui --fleet` again." : "The ledger daemon cannot be reached.", 0);
  }
  if (answer.ok) return (await answer.json()) as Answer;
  if (answer.status === 401) lockedOut.value = true;
  const told = (await answer.json().catch(() => ({}))) as { error?: string; hint?: string };
  throw new Refused([told.error ?? `The daemon answered ${answer.status}.`, told.hint ?? ""].join(" ").trim(), answer.status);
}

/** A request line has an end (8 KiB): questions about each of these runs, in the address, as few as will do. */
export function aboutRuns(path: string, ids: string[]): string[] {
  const found: string[] = [];
  for (const id of ids) {
    const word = new URLSearchParams({ run_id: id }).toString();
    const last = found.at(-1);
    if (last !== undefined && last.length + word.length < 6000) found[found.length - 1] = `${last}&${word}`;
    else found.push(`${path}?${word}`);
  }
  return found;
}

export const sentence = (error: unknown): string => (error instanceof Error ? error.message : String(error));
