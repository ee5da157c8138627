// The live stream: goes on where it was after a sleep or a restart, and is heard by cadence, not by message.
import { signal } from "@preact/signals";
import type { Changes } from "./api.gen";
import { ask } from "./ask";
import { inFile } from "./record";

export type State = "connecting" | "live" | "away" | "file";
export const state = signal<State>(inFile ? "file" : "connecting");
/** Why whoever serves the page cannot follow, in a sentence; empty: nobody said. */
export const why = signal("");
/** How often the stream has come back: what could not be asked meanwhile is asked again. */
export const returned = signal(0);

const TRY_LATER = 1013;
const FLUSH_MS = 33;
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 8_000;

export class Stream {
  private socket: WebSocket | null = null;
  private after: number | null = null;
  private heard: Changes[] = [];
  private timer = 0;
  private retryMs = FIRST_RETRY_MS;
  private closed = false;

  /** `begin`: where the stream stands is known, so pages can be asked for; again, where too much was missed. */
  constructor(
    private readonly filters: URLSearchParams,
    private readonly begin: () => void,
    private readonly hear: (changes: Changes[]) => void,
  ) {
    if (!inFile) this.connect();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  private connect(): void {
    const words = new URLSearchParams(this.filters);
    if (this.after !== null) words.set("after", String(this.after));
    const socket = new WebSocket(`ws://${location.host}/v1/live/calls?${words}`);
    this.socket = socket;
    socket.onmessage = (event: MessageEvent<string>) => this.take(JSON.parse(event.data) as Changes);
    socket.onclose = (event) => {
      if (!this.closed) this.retry(event.code === TRY_LATER ? event.reason : "");
    };
  }

  private take(changes: Changes): void {
    const begins = this.after === null || changes.reset;
    this.after = changes.after;
    this.retryMs = FIRST_RETRY_MS;
    if (state.value === "away") returned.value++;
    state.value = "live";
    why.value = "";
    if (begins) {
      this.heard = [];
      this.begin();
    } else {
      this.heard.push(changes);
      this.timer ||= setTimeout(() => this.flush(), FLUSH_MS);
    }
  }

  private flush(): void {
    this.timer = 0;
    const heard = this.heard;
    this.heard = [];
    this.hear(heard);
  }

  private retry(reason: string): void {
    state.value = "away";
    why.value = reason;
    // It never began: the pages have their own sentence for why.
    if (this.after === null) this.begin();
    // Whether the daemon still knows us shows in the answer; the banner follows from it.
    void ask("/v1/session").catch(() => undefined);
    setTimeout(() => this.closed || this.connect(), this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, LAST_RETRY_MS);
  }
}
