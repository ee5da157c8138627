// Runs: the scoreboard.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, asked, go, place } from "./address";
import { RUN_FILTERS, type RunPage, type RunRow, type Sparks } from "./api.gen";
import { aboutRuns, ask, sentence } from "./ask";
import { command, Filters } from "./filters";
import { type Column, List } from "./list";
import { Copy, Trouble } from "./parts";
import { Following, Recovery, type Recovered, refused } from "./recovery";
import { clock, count, duration, known, oneLine } from "./text";
import { returned, Stream } from "./stream";

const PAGE = 100;
const REFRESH_MS = 1000;

export const lasted = (run: Pick<RunRow, "started_at" | "ended_at">): number =>
  (run.ended_at ? Date.parse(run.ended_at) : Date.now()) - Date.parse(run.started_at);

/** Most first; a recovery that is not known comes last. */
const SORTS: Record<string, (run: RunRow, recovered: Record<string, Recovered>) => number> = {
  started: (run) => Date.parse(run.started_at),
  duration: lasted,
  calls: (run) => run.calls_total,
  refused,
  recovery: (run, recovered) => recovered[run.run_id]?.recovery_rate ?? -1,
  errors: (run) => run.errors_total,
};

function Spark({ calls }: { calls: number[] | null | undefined }) {
  if (!calls) return null;
  const most = Math.max(1, ...calls);
  return (
    <svg class="spark" viewBox="0 0 72 20" role="img" aria-label={`Calls over time: ${calls.join(", ")}`}>
      {calls.map((number, at) => number > 0 && <rect x={at * 3} y={20 - Math.max(2, (number / most) * 20)} width="2.2" height={Math.max(2, (number / most) * 20)} />)}
    </svg>
  );
}

export function Runs() {
  const words = place.value.words;
  const given = words.toString();
  const filters = useMemo(() => asked(words, RUN_FILTERS), [given]);
  const text = typeof filters === "string" ? "" : filters.toString();
  const [rows, setRows] = useState<RunRow[]>([]);
  const [older, setOlder] = useState<string | null>(null);
  const [trouble, setTrouble] = useState("");
  const [loaded, setLoaded] = useState(false);
  const [sparks, setSparks] = useState<Record<string, number[] | null>>({});
  const [recovered, setRecovered] = useState<Record<string, Recovered>>({});
  const following = useRef<Following | null>(null);
  const active = useSignal<string | null>(null);
  const sort = words.get("sort") ?? "started";
  const [marked, setMarked] = useState<string[]>([]);
  /** The last two that were marked. */
  const mark = (id: string) => setMarked((before) => (before.includes(id) ? before.filter((one) => one !== id) : [...before, id].slice(-2)));
  const compared = marked.length === 2 ? address("/compare", { run: marked[1]!, with: marked[0]! }) : null;

  const load = async (cursor: string | null) => {
    const asking = new URLSearchParams(text);
    asking.set("limit", String(PAGE));
    if (cursor) asking.set("cursor", cursor);
    try {
      const page = await ask<RunPage>(`/v1/runs?${asking}`);
      setRows((before) => {
        if (!cursor && before.length <= PAGE) return page.rows;
        const fresh = new Set(page.rows.map((run) => run.run_id));
        const kept = before.filter((run) => !fresh.has(run.run_id));
        return cursor ? [...kept, ...page.rows] : [...page.rows, ...kept];
      });
      if (cursor || !loaded) setOlder(page.next_cursor);
      setLoaded(true);
      setTrouble("");
      for (const question of aboutRuns("/v1/sparks", page.rows.map((run) => run.run_id))) {
        const found = await ask<Sparks>(question);
        setSparks((before) => ({ ...before, ...Object.fromEntries(found.sparks.map((one) => [one.run_id, one.calls])) }));
      }
      following.current?.follow(page.rows);
    } catch (error) {
      setTrouble(sentence(error));
    }
  };

  useEffect(() => {
    const stop = new AbortController();
    const take = (found: Recovered[]) => setRecovered((before) => ({ ...before, ...Object.fromEntries(found.map((one) => [one.run_id, one])) }));
    following.current = new Following(take, (error) => setTrouble(sentence(error)), stop.signal);
    return () => stop.abort();
  }, []);

  useEffect(() => {
    setLoaded(false);
    setRows([]);
    let timer = 0;
    const stream = new Stream(new URLSearchParams(), () => void load(null), () => {
      timer ||= setTimeout(() => ((timer = 0), void load(null)), REFRESH_MS);
    });
    return () => {
      clearTimeout(timer);
      stream.close();
    };
  }, [text]);

  const back = returned.value;
  useEffect(() => {
    if (trouble) void load(null);
  }, [back]);

  const sorted = useMemo(() => {
    const by = SORTS[sort] ?? SORTS.started!;
    return [...rows].sort((one, other) => by(other, recovered) - by(one, recovered));
  }, [rows, sort, sort === "recovery" && recovered]);

  const columns: Column<RunRow>[] = [
    {
      name: "≷",
      class: "wide",
      cell: (run) => (
        <input
          type="checkbox"
          aria-label={`Compare run ${oneLine(run.run_id)}`}
          checked={marked.includes(run.run_id)}
          onClick={(event) => event.stopPropagation()}
          onChange={() => mark(run.run_id)}
        />
      ),
    },
    { name: "Started", cell: (run) => <time title={`${run.started_at} (UTC)`}>{clock(run.started_at)}</time> },
    { name: "Status", cell: (run) => <span class={`badge ${run.status.toLowerCase()}`}>{run.status.toLowerCase()}</span> },
    { name: "Agent", class: "name", cell: (run) => <bdi>{known(run.agent_id)}</bdi> },
    { name: "Calls", class: "number", cell: (run) => run.calls_total.toLocaleString("en") },
    { name: "Refused", class: "number", cell: (run) => <span class={refused(run) ? "refused" : "quiet"}>{refused(run)}</span> },
    { name: "Recovery", class: "number wide", cell: (run) => <Recovery run={run} found={recovered[run.run_id]} /> },
    { name: "Errors", class: "number wide", cell: (run) => <span class={run.errors_total ? "failed" : "quiet"}>{run.errors_total}</span> },
    { name: "Lasted", class: "number wide", cell: (run) => duration(lasted(run)) },
    { name: "Over time", class: "wide", cell: (run) => <Spark calls={sparks[run.run_id]} /> },
    { name: "Principal", class: "wider", cell: (run) => <bdi>{known(run.principal)}</bdi> },
    { name: "Run", class: "wider", cell: (run) => <bdi>{oneLine(run.run_id)}</bdi> },
  ];
  return (
    <main class="surface">
      <h1 class="sr">Runs</h1>
      <Filters table={RUN_FILTERS} path="/runs" />
      <div class="bar">
        <label>
          Sort by{" "}
          <select value={sort} onChange={(event) => go(address("/runs", { ...Object.fromEntries(words), sort: event.currentTarget.value }), true)}>
            {Object.keys(SORTS).map((name) => (
              <option value={name}>{name}</option>
            ))}
          </select>
        </label>
        <span class="quiet">{count(rows.length, "run")}{older !== null ? " and older ones" : ""}</span>
        {compared && <a class="button" href={compared}>Compare the two that are marked</a>}
        <Copy text={command(RUN_FILTERS, words, "runs")} label="Copy as sub runs" />
      </div>
      {typeof filters === "string" && <Trouble text={filters} />}
      {trouble && <Trouble text={trouble} />}
      {sorted.length || !loaded ? (
        <List
          label="Runs"
          rows={sorted}
          version={0}
          columns={columns}
          layout="var(--runs)"
          keyOf={(run) => run.run_id}
          active={active.value}
          onActive={(run) => (active.value = run.run_id)}
          onOpen={(run) => go(address("/run", { run: run.run_id }))}
          onKey={(key, run) => {
            if (key !== "c") return false;
            mark(run.run_id);
            return true;
          }}
          more={older !== null}
          onEnd={() => older !== null && void load(older)}
        />
      ) : (
        <p class="empty">{text ? "No run matches." : "No run has been recorded yet."}</p>
      )}
    </main>
  );
}
