// Live: calls as they happen, and back in time. Nothing moves under the pointer: what is new waits and is counted.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { address, asked, go, place, set } from "./address";
import { CALL_FILTERS, type CallRow } from "./api.gen";
import { Decision, Status, tone } from "./badge";
import { Calls, cursorAt, momentOf } from "./calls";
import { command, Filters } from "./filters";
import { type Column, List } from "./list";
import { returned, Stream } from "./stream";
import { clock, count, duration, oneLine } from "./text";
import { Copy, Moment, Trouble } from "./parts";

const SPANS: [string, number][] = [["15 min", 9e5], ["1 h", 36e5], ["6 h", 216e5], ["24 h", 864e5], ["7 d", 6048e5], ["30 d", 2592e6]];

export const callAddress = (call: Pick<CallRow, "call_id" | "run_id"> & { shim_id?: string | null }): string =>
  address("/call", { call: call.call_id, run: call.run_id, ...(call.shim_id ? { shim: call.shim_id } : {}) });

const COLUMNS: Column<CallRow>[] = [
  { name: "Time", cell: (call) => <Moment at={call.created_at} /> },
  { name: "Decision", cell: (call) => <Decision call={call} /> },
  { name: "Tool", class: "name", cell: (call) => <bdi>{oneLine(`${call.server_name}/${call.tool_name}`)}</bdi> },
  { name: "Status", class: "wide", cell: (call) => <Status call={call} /> },
  { name: "Took", class: "number wide", cell: (call) => duration(call.latency_ms) },
  { name: "Rule", class: "wide", cell: (call) => <bdi>{oneLine(call.rule_id ?? "")}</bdi> },
  { name: "Run", class: "wider", cell: (call) => <bdi>{oneLine(call.run_id)}</bdi> },
];

export function Live() {
  const words = place.value.words;
  const given = words.toString();
  const filters = useMemo(() => asked(words), [given]); // `15m` ago stays where it was when it was asked for
  const at = words.get("at");
  const text = typeof filters === "string" ? filters : filters.toString();
  const calls = useMemo(
    () => new Calls(new URLSearchParams(text), at === null ? null : cursorAt(Number(at))),
    [text, at],
  );
  const held = useRef(false);
  const active = useSignal<string | null>(null);

  useEffect(() => {
    if (typeof filters === "string") return;
    if (at !== null) {
      void calls.load();
      // An open page keeps the daemon, and shows whether it is there.
      const presence = new Stream(calls.filters, () => undefined, () => undefined);
      return () => {
        presence.close();
        calls.close();
      };
    }
    const stream = new Stream(
      calls.filters,
      () => calls.restart(),
      (heard) => heard.forEach((changes) => calls.hear(changes, held.current)),
    );
    return () => {
      stream.close();
      calls.close();
    };
  }, [calls]);

  const back = returned.value;
  useEffect(() => {
    if (calls.trouble.value) void calls.load();
  }, [back]);

  if (typeof filters === "string") {
    return (
      <main class="surface">
        <h1 class="sr">Live</h1>
        <Filters table={CALL_FILTERS} path="/" />
        <Trouble text={filters} />
      </main>
    );
  }
  const version = calls.version.value;
  return (
    <main class="surface">
      <h1 class="sr">Live</h1>
      <Filters table={CALL_FILTERS} path="/" />
      <Scrubber at={at} />
      <div class="bar">
        {at === null ? (
          <button onClick={() => go(address("/", set(words, "at", [String(Date.now())])))}>❚❚ Pause</button>
        ) : (
          <button class="strong" onClick={() => go(address("/", set(words, "at", [])))}>▶ Jump to now</button>
        )}
        <span aria-live="polite">
          {calls.waiting.length > 0 && (
            <button class="strong" onClick={() => calls.release()}>{count(calls.waiting.length, "new call")}</button>
          )}
        </span>
        <span class="quiet">
          {count(calls.rows.length, "call")}
          {calls.loading.value || !calls.answered ? `, looking${calls.older === null ? "" : ` before ${clock(momentOf(calls.older))}`} …` : calls.older !== null ? " and older ones" : ", all there are"}
        </span>
        <Copy text={command(CALL_FILTERS, words, "query")} label="Copy as sub query" />
      </div>
      {calls.trouble.value && <Trouble text={calls.trouble.value} />}
      {calls.rows.length || calls.loading.value || !calls.answered ? (
        <List
          label="Calls, newest first"
          rows={calls.rows}
          version={version}
          columns={COLUMNS}
          layout="var(--calls)"
          keyOf={(call) => call.cursor}
          tone={tone}
          active={active.value}
          onActive={(call) => (active.value = call.cursor)}
          onOpen={(call) => go(callAddress(call))}
          more={calls.older !== null}
          onEnd={() => void calls.load()}
          onHold={(now) => {
            held.current = now;
            if (!now && calls.waiting.length) calls.release();
          }}
        />
      ) : (
        <p class="empty">{text ? "No call matches." : "No tool call has been recorded yet. Run an agent; calls show up here as they happen."}</p>
      )}
    </main>
  );
}

/** The scale stands still while the thumb moves: it ends where time was when it was begun. */
function Scrubber({ at }: { at: string | null }) {
  const words = place.value.words;
  const span = useSignal(SPANS[1]![1]);
  const end = useMemo(() => Date.now(), [at === null, span.value]);
  const shown = at === null ? end : Number(at);
  const widened = Math.max(span.value, end - shown);
  return (
    <div class="scrubber">
      <select aria-label="How far the slider reaches back" value={String(span.value)} onChange={(event) => (span.value = Number(event.currentTarget.value))}>
        {SPANS.map(([name, ms]) => (
          <option value={String(ms)}>{name}</option>
        ))}
      </select>
      <input
        type="range"
        aria-label="Go back in time"
        aria-valuetext={at === null ? "now" : clock(shown)}
        min={end - widened}
        max={end}
        step={Math.max(1, Math.round(widened / 2000))}
        value={shown}
        onInput={(event) => go(address("/", set(words, "at", [event.currentTarget.value])), at !== null)}
      />
      <output>{at === null ? "now" : <time title={new Date(shown).toISOString()}>{clock(shown)}</time>}</output>
    </div>
  );
}
