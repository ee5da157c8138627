// Run: what happened, on one timeline, and the same as a table in step with it.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { place, go, address } from "./address";
import type { CallPage, CallRow, Timeline as Items, WholeRun } from "./api.gen";
import { ask } from "./ask";
import { useAnswer } from "./asked";
import { Confirmed } from "./confirm";
import { asking, fleet } from "./fleet";
import { Decision, Status, tone } from "./badge";
import { type Column, List } from "./list";
import { callAddress } from "./live";
import { Copy, Fact, Moment, Trouble } from "./parts";
import { lasted } from "./runs";
import { inFile } from "./record";
import { Stream } from "./stream";
import { count, duration, known, oneLine, quoted } from "./text";
import { type Bar, Timeline } from "./timeline";
import { write } from "./write";

type Policy = { policy_id: string; policy_version: string };
type Told = {
  agent?: { kind?: string; text?: string; message?: string };
  run?: { status?: string; mode?: string; policy?: Policy };
  policy?: Policy;
};
type Item = Items["items"][number] & Partial<CallRow> & Told;

const keyOf = (item: Item, at: number): string => (item.kind === "call" ? `${item.call_id}` : `${at}-${item.kind}`);

/** A run too large for one answer is told by its calls, a page after the other. */
async function paged(run: string, stop: AbortSignal, take: (rows: CallRow[]) => void): Promise<void> {
  let cursor: string | null = null;
  do {
    const words: URLSearchParams = new URLSearchParams({ run_id: run, limit: "1000", ...(cursor ? { cursor } : {}) });
    const page: CallPage = await ask<CallPage>(`/v1/calls?${words}`, stop);
    take(page.rows);
    cursor = page.next_cursor;
  } while (cursor !== null);
}

function told(item: Item): string {
  if (item.kind === "agent_event") return [item.agent?.kind, item.agent?.text ?? item.agent?.message].filter(Boolean).join(": ");
  if (item.run?.status) return `ended ${item.run.status.toLowerCase()}`;
  if (item.run?.policy) return `mode ${item.run.mode}, policy ${item.run.policy.policy_id} ${item.run.policy.policy_version}`;
  if (item.policy) return `policy ${item.policy.policy_id} ${item.policy.policy_version}`;
  const { at: _at, kind: _kind, shim_id: _shim, call_id: _call, server_name: _server, ...rest } = item;
  return JSON.stringify(rest);
}

const COLUMNS: Column<Item & { key: string }>[] = [
  { name: "Time", cell: (item) => <Moment at={item.at} /> },
  { name: "Decision", cell: (item) => (item.kind === "call" ? <Decision call={item as CallRow} /> : <span class="quiet">{oneLine(item.kind).replaceAll("_", " ")}</span>) },
  {
    name: "What",
    class: "name",
    cell: (item) => <bdi>{oneLine(item.kind === "call" ? `${item.server_name}/${item.tool_name}` : told(item).slice(0, 400))}</bdi>,
  },
  { name: "Status", class: "wide", cell: (item) => item.kind === "call" && <Status call={item as CallRow} /> },
  { name: "Took", class: "number wide", cell: (item) => duration(item.latency_ms) },
  { name: "Rule", class: "wide", cell: (item) => <bdi>{oneLine(item.rule_id ?? "")}</bdi> },
];

export function Run() {
  const id = place.value.words.get("run") ?? "";
  const [again, setAgain] = useState(0);
  const path = `/v1/runs/${encodeURIComponent(id)}`;
  const run = useAnswer<WholeRun>(path, again);
  const items = useAnswer<Items>(`${path}/timeline`, again);
  const [calls, setCalls] = useState<CallRow[]>([]);
  const kept = useRef<Item[]>([]);
  const active = useSignal<string | null>(null);

  useEffect(() => {
    let timer = 0;
    const stream = new Stream(new URLSearchParams({ run_id: id }), () => setAgain((n) => n + 1), () => {
      timer ||= setTimeout(() => ((timer = 0), setAgain((n) => n + 1)), 1000);
    });
    return () => {
      clearTimeout(timer);
      stream.close();
    };
  }, [id]);

  const whole = items.answer?.whole ?? true;
  useEffect(() => {
    if (whole) return;
    const stop = new AbortController();
    setCalls([]);
    paged(id, stop.signal, (rows) => setCalls((before) => [...before, ...rows])).catch(() => undefined);
    return () => stop.abort();
  }, [id, whole]);

  if (items.answer) kept.current = whole ? (items.answer.items as Item[]) : [];
  const shown = useMemo(() => {
    const all: Item[] = whole ? kept.current : [...calls].reverse().map((call) => ({ ...call, at: call.created_at, kind: "call", server_name: call.server_name }));
    return all.map((item, at) => ({ ...item, key: keyOf(item, at) }));
  }, [items.answer, calls, whole]);

  const trouble = run.trouble || items.trouble;
  if (trouble && !run.answer) return <main class="surface"><h1>Run <bdi>{oneLine(id)}</bdi></h1><Trouble text={trouble} /></main>;
  const facts = run.answer;
  return (
    <main class="surface">
      <h1>
        Run <bdi>{oneLine(id)}</bdi>
      </h1>
      {facts && (
        <dl class="facts">
          <Fact name="Status"><span class={`badge ${facts.status.toLowerCase()}`}>{facts.status.toLowerCase()}</span></Fact>
          <Fact name="Agent"><bdi>{known(facts.agent_id)}</bdi> ({facts.client}, {facts.env})</Fact>
          <Fact name="Principal"><bdi>{known(facts.principal)}</bdi></Fact>
          <Fact name="Started"><Moment at={facts.started_at} />, {facts.ended_at ? "lasted" : "for"} {duration(lasted(facts))}{!facts.ended_at && " so far"}</Fact>
          <Fact name="Calls">{facts.calls_total.toLocaleString("en")}: {facts.calls_allowed} allowed, {facts.calls_blocked} blocked, {facts.calls_throttled} throttled; {count(facts.errors_total, "error")}</Fact>
          <Fact name="Policy"><bdi>{known(facts.policy_id)}</bdi> {oneLine(facts.policy_version ?? "")} ({known(facts.mode)})</Fact>
        </dl>
      )}
      {!whole && <p class="notice">This run is large: its calls are shown ({calls.length.toLocaleString("en")} so far), what its agent said is not.</p>}
      <Lanes items={shown} active={active.value} choose={(key) => (active.value = key)}>
        <Copy text={asking(`sub show ${quoted(id)}`)} label="Copy as sub show" />
        {!inFile && <a href={address("/", { run: id })}>Its calls, live</a>}
        {facts?.status === "RUNNING" && !fleet.value && (
          <Confirmed
            label="Stop this run"
            title="Stop this run?"
            reason="Why"
            act={async (reason) => {
              const done = await write<{ ended_before: boolean; processes_left: number }>("/v1/kill", { run_id: id, reason });
              setAgain((n) => n + 1);
              return done.ended_before ? "It had ended before." : done.processes_left ? `Stopped; ${count(done.processes_left, "process")} still there.` : "Stopped.";
            }}
          >
            <p>Every further tool call of it is refused, and <code>sub run</code> ends its agent. The order is recorded in the run.</p>
          </Confirmed>
        )}
      </Lanes>
      <List
        label="What happened, in order"
        rows={shown}
        version={again}
        columns={COLUMNS}
        layout="var(--items)"
        keyOf={(item) => item.key}
        tone={(item) => (item.kind === "call" ? tone(item as CallRow) : "told")}
        active={active.value}
        onActive={(item) => (active.value = item.key)}
        onOpen={(item) => item.call_id && go(callAddress({ call_id: item.call_id, run_id: id }))}
      />
    </main>
  );
}

type LanesProps = { items: (Item & { key: string })[]; active: string | null; choose: (key: string) => void; children: ComponentChildren };

function Lanes({ items, active, choose, children }: LanesProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const timeline = useRef<Timeline | null>(null);
  useEffect(() => {
    timeline.current = new Timeline(canvas.current!, choose);
  }, []);
  useEffect(() => {
    const bars: Bar[] = items
      .filter((item) => item.kind === "call")
      .map((item) => {
        const from = Date.parse(item.at);
        return { key: item.key, lane: oneLine(item.server_name ?? "unknown"), from, to: from + (item.latency_ms ?? 0), tone: tone(item as CallRow) };
      })
      .sort((one, other) => one.from - other.from);
    const marks = items
      .filter((item) => item.kind === "breaker_trip" || item.kind === "policy_loaded" || item.kind === "settings_change")
      .map((item) => ({ at: Date.parse(item.at), tone: item.kind === "breaker_trip" ? "error" : "told" }));
    timeline.current!.show(bars, marks);
  }, [items]);
  useEffect(() => timeline.current!.select(active), [active]);
  const keys = (event: KeyboardEvent) => {
    const lanes = timeline.current!;
    if (event.key === "+" || event.key === "=") lanes.zoom(0.5);
    else if (event.key === "-") lanes.zoom(2);
    else if (event.key === "ArrowLeft") lanes.pan(-0.2);
    else if (event.key === "ArrowRight") lanes.pan(0.2);
    else if (event.key === "0") lanes.reset();
    else return;
    event.preventDefault();
  };
  return (
    <>
    <div class="lanes" role="group" aria-label="Timeline. The table below has the same in words." tabIndex={0} onKeyDown={keys}>
      <canvas ref={canvas} aria-hidden="true" />
    </div>
      <div class="bar">
        <button aria-label="Zoom in" onClick={() => timeline.current!.zoom(0.5)}>+</button>
        <button aria-label="Zoom out" onClick={() => timeline.current!.zoom(2)}>−</button>
        <button onClick={() => timeline.current!.reset()}>Whole run</button>
        {children}
      </div>
    </>
  );
}
