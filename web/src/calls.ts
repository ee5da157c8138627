// The calls of the list, newest first, each once: pages from the past below, what happens now on top.
import { signal } from "@preact/signals";
import type { CallPage, CallRow, Changes } from "./api.gen";
import { ask, sentence } from "./ask";

export const PAGE = 200;
/** A search through everything shows what it has found after this long, and goes on. */
const PATIENCE_MS = 150;
/** What is kept; the oldest of more is let go, and asked for again by whoever goes there. */
export const MOST = 20_000;

const TIE = 65536n; // a cursor is milliseconds and a tie-break

/** Cursors are numbers too large for a number, without leading zeros. Over a fleet the calls of one moment have the same,
 * and a word after a point tells them apart. */
export function isNewer(one: string, other: string): boolean {
  const [number = "", word = ""] = one.split(".");
  const [otherNumber = "", otherWord = ""] = other.split(".");
  if (number.length !== otherNumber.length) return number.length > otherNumber.length;
  return number === otherNumber ? word > otherWord : number > otherNumber;
}

export const momentOf = (cursor: string): number => Number(BigInt(cursor.split(".")[0]!) / TIE);

/** The cursor of which the page has everything up to a moment. */
export const cursorAt = (ms: number): string => String(BigInt(Math.round(ms)) * TIE + TIE - 1n);

const progress = (row: CallRow): number => (row.decision ? 1 : 0) + (row.status ? 2 : 0);

export class Calls {
  readonly version = signal(0);
  readonly trouble = signal("");
  readonly loading = signal(false);
  rows: CallRow[] = [];
  /** Newer calls that wait, because somebody looks at the list as it is. */
  waiting: CallRow[] = [];
  /** Whether the daemon has answered: before, nothing is known of what there is. */
  answered = false;
  /** Where older calls go on; null: there are none. */
  older: string | null = null;
  private places = new Map<string, CallRow>();
  private stop = new AbortController();

  constructor(readonly filters: URLSearchParams, readonly from: string | null) {}

  close(): void {
    this.stop.abort();
  }

  /** From the beginning: too much was missed. */
  restart(): void {
    this.stop.abort();
    this.stop = new AbortController();
    this.rows = [];
    this.waiting = [];
    this.older = null;
    this.places.clear();
    this.loading.value = false;
    void this.load();
  }

  async load(): Promise<void> {
    if (this.loading.value) return;
    this.loading.value = true;
    const stop = this.stop.signal;
    const words = new URLSearchParams(this.filters);
    words.set("limit", String(PAGE));
    words.set("patience_ms", String(PATIENCE_MS));
    const enough = this.rows.length + PAGE;
    let cursor = this.rows.length ? this.older : this.from;
    try {
      do {
        if (cursor !== null) words.set("cursor", cursor);
        const page = await ask<CallPage>(`/v1/calls?${words}`, stop);
        if (stop.aborted) return;
        for (const row of page.rows) this.put(row, false);
        this.older = cursor = page.next_cursor;
        this.answered = true;
        this.trouble.value = "";
        this.version.value++;
      } while (cursor !== null && this.rows.length < enough);
    } catch (error) {
      if (!stop.aborted) this.trouble.value = sentence(error);
    } finally {
      if (!stop.aborted) {
        this.loading.value = false;
        this.version.value++;
      }
    }
  }

  /** What the stream says. `hold`: calls that are new wait. */
  hear(changes: Changes, hold: boolean): void {
    for (const row of changes.rows as CallRow[]) this.put(row, hold);
    for (const cursor of changes.gone) this.drop(cursor);
    if (hold) this.version.value++;
    else this.release();
  }

  release(): void {
    const waiting = this.waiting;
    this.waiting = [];
    for (const row of waiting) this.insert(row);
    while (this.rows.length > MOST) {
      this.places.delete(this.rows.pop()!.cursor);
      this.older = this.rows.at(-1)!.cursor;
    }
    this.version.value++;
  }

  private put(row: CallRow, hold: boolean): void {
    const known = this.places.get(row.cursor);
    if (known) {
      // An answer may be older than what the stream has said since.
      if (progress(row) >= progress(known)) Object.assign(known, row);
      return;
    }
    if (this.older !== null && !isNewer(row.cursor, this.older)) {
      if (hold || !this.loading.value) return; // it belongs to a page that nobody has asked for
    }
    this.places.set(row.cursor, row);
    const newest = this.rows[0];
    if (hold && newest && isNewer(row.cursor, newest.cursor)) this.waiting.push(row);
    else this.insert(row);
  }

  private insert(row: CallRow): void {
    let low = 0;
    let high = this.rows.length;
    if (high && isNewer(this.rows[high - 1]!.cursor, row.cursor)) low = high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isNewer(this.rows[middle]!.cursor, row.cursor)) low = middle + 1;
      else high = middle;
    }
    this.rows.splice(low, 0, row);
  }

  private drop(cursor: string): void {
    if (!this.places.delete(cursor)) return;
    this.rows = this.rows.filter((row) => row.cursor !== cursor);
    this.waiting = this.waiting.filter((row) => row.cursor !== cursor);
  }
}
