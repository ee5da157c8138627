// Overview: how much, how much of it was refused or failed, how long it took; and closer, wherever one looks.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { address, asked, go, place, set } from "./address";
import { CALL_FILTERS, type Groups, type OverTime } from "./api.gen";
import { useAnswer } from "./asked";
import { command, Filters } from "./filters";
import { Plot, type Series } from "./plot";
import { Copy, Trouble } from "./parts";
import { clock, count, duration, oneLine } from "./text";

const SPANS: [name: string, since: string][] = [["1 h", "1h"], ["6 h", "6h"], ["24 h", "24h"], ["7 d", "7d"], ["30 d", "30d"], ["all", ""]];
const CLOSEST_MS = 1_000;
const PARTS = 72;

const AMOUNTS: Series[] = [
  { label: "calls", colour: "tone-told", bars: true },
  { label: "refused", colour: "tone-block", bars: true },
  { label: "errors", colour: "tone-throttle", bars: true },
];
const TIMES: Series[] = [{ label: "p95", colour: "tone-reject_with_hint" }, { label: "p50", colour: "tone-allow" }];

type Part = OverTime["parts"][number];
type Group = Groups["groups"][number];

const refused = (one: Pick<Part, "blocked" | "throttled">): number => one.blocked + one.throttled;
const total = (parts: Part[], of: (part: Part) => number): number => parts.reduce((sum, part) => sum + of(part), 0);

export function Overview() {
  const words = place.value.words;
  const given = words.toString();
  const looked = words.has("since") || words.has("until") || words.get("all") === "yes" ? words : set(words, "since", ["24h"]);
  const filters = useMemo(() => asked(looked), [given]);
  const text = typeof filters === "string" ? null : filters.toString();
  const over = useAnswer<OverTime>(text === null ? null : `/v1/over_time?parts=${PARTS}&${text}`);
  const tools = useAnswer<Groups>(text === null ? null : `/v1/groups?by=server_name&by=tool_name&limit=12&${text}`);
  const rules = useAnswer<Groups>(text === null ? null : `/v1/groups?by=rule_id&limit=13&${text}`);
  const hours = useAnswer<Groups>(text === null ? null : `/v1/groups?by=hour&limit=5000&${text}`);
  const parts = over.answer?.parts ?? [];
  const zoom = (from: number, to: number) => {
    const closer = to - from < CLOSEST_MS ? from + CLOSEST_MS : to;
    go(address("/overview", set(set(set(words, "all", []), "since", [new Date(from).toISOString()]), "until", [new Date(closer).toISOString()])));
  };
  const trouble = typeof filters === "string" ? filters : over.trouble || tools.trouble || rules.trouble;
  const ruled = rules.answer?.groups.filter((group) => group.rule_id) ?? [];
  return (
    <main class="surface scrolls">
      <h1 class="sr">Overview</h1>
      <Filters table={CALL_FILTERS} path="/overview" />
      <div class="bar" role="group" aria-label="How far back">
        {SPANS.map(([name, since]) => (
          <button
            aria-pressed={since ? looked.get("since") === since && !words.has("until") : words.get("all") === "yes"}
            onClick={() => go(address("/overview", set(set(set(words, "until", []), "since", since ? [since] : []), "all", since ? [] : ["yes"])))}
          >
            {name}
          </button>
        ))}
        {words.has("until") && <button onClick={() => history.back()}>Back out</button>}
        <a href={address("/", looked)}>These calls</a>
        <Copy text={command(CALL_FILTERS, looked, "query --plot")} label="Copy as sub query" />
      </div>
      {trouble && <Trouble text={trouble} />}
      {over.answer && (
        <>
          <dl class="tiles">
            <Tile name="calls" value={total(parts, (part) => part.calls).toLocaleString("en")} />
            <Tile name="refused" value={total(parts, refused).toLocaleString("en")} tone="refused" />
            <Tile name="errors" value={total(parts, (part) => part.errors).toLocaleString("en")} tone="failed" />
            <Tile name="longest" value={duration(parts.reduce((most, part) => Math.max(most, part.latency_ms_max ?? 0), 0))} />
          </dl>
          {parts.length ? (
            <>
              <Drawn title="Calls, refused, errors" answer={over.answer} series={AMOUNTS} unit={(value) => value.toLocaleString("en")} zoom={zoom} values={(part) => [part.calls, refused(part), part.errors]} />
              {over.answer.exact ? (
                <Drawn title="How long calls took: p50 and p95" answer={over.answer} series={TIMES} unit={(value) => duration(value)} zoom={zoom} values={(part) => [part.latency_ms_p95, part.latency_ms_p50]} />
              ) : (
                <p class="notice">There are too many calls in this time for p50 and p95: look at a shorter one.</p>
              )}
              <details>
                <summary>The same as a table</summary>
                <Numbers answer={over.answer} zoom={zoom} />
              </details>
            </>
          ) : (
            <p class="empty">No call in this time.</p>
          )}
          <div class="columns">
            <Top title="Tools" groups={tools.answer?.groups} name={(one) => `${one.server_name}/${one.tool_name}`} to={(one) => set(set(looked, "server", [one.server_name ?? ""]), "tool", [one.tool_name ?? ""])} />
            <Top title="Rules that decided" groups={ruled.slice(0, 12)} name={(one) => one.rule_id ?? ""} to={(one) => set(looked, "rule", [one.rule_id ?? ""])} />
            <Hours groups={hours.answer?.groups} />
          </div>
        </>
      )}
    </main>
  );
}

const Tile = ({ name, value, tone }: { name: string; value: string; tone?: string }) => (
  <div class="tile">
    <dt>{name}</dt>
    <dd class={value === "0" ? "quiet" : (tone ?? "")}>{value || "–"}</dd>
  </div>
);

type DrawnProps = {
  title: string;
  answer: OverTime;
  series: Series[];
  unit: (value: number) => string;
  values: (part: Part) => (number | null)[];
  zoom: (from: number, to: number) => void;
};

function Drawn({ title, answer, series, unit, values, zoom }: DrawnProps) {
  const box = useRef<HTMLDivElement>(null);
  const last = useRef(zoom);
  last.current = zoom;
  useEffect(() => {
    const plot = new Plot(box.current!, series, unit, (from, to) => last.current(from, to));
    const draw = () => {
      const [times, columns] = filled(answer, values, series.length);
      plot.show(times, columns, answer.step_ms);
    };
    draw();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      scheme.removeEventListener("change", draw);
      plot.close();
    };
  }, [answer]);
  return (
    <figure class="card">
      <figcaption>
        {title}{" "}
        <span class="legend" aria-hidden="true">
          {series.map((one) => <span class={`key ${one.colour}`}>{one.label}</span>)}
        </span>{" "}
        <span class="quiet">a part is {duration(answer.step_ms)}; click or drag to look closer</span>
      </figcaption>
      <div class="plot" ref={box} role="img" aria-label={`${title} over time. The table below has the same in numbers.`} />
    </figure>
  );
}

/** Parts without a call have none, and that is drawn. */
function filled(answer: OverTime, values: (part: Part) => (number | null)[], width: number): [number[], (number | null)[][]] {
  const known = new Map(answer.parts.map((part) => [part.at_ms, part]));
  const last = answer.parts.at(-1)?.at_ms ?? answer.from_ms;
  const times: number[] = [];
  const columns: (number | null)[][] = Array.from({ length: width }, () => []);
  for (let at = answer.from_ms; at <= Math.max(last, answer.from_ms + answer.step_ms * (PARTS - 1)); at += answer.step_ms) {
    times.push(at);
    const part = known.get(at);
    const told = part ? values(part) : [];
    columns.forEach((column, index) => column.push(told[index] ?? null));
  }
  return [times, columns];
}

function Numbers({ answer, zoom }: { answer: OverTime; zoom: (from: number, to: number) => void }) {
  return (
    <div class="wideTable" tabIndex={0} role="group" aria-label="Calls over time as a table">
      <table class="numbers">
        <thead>
          <tr>{["From", "Calls", "Refused", "Errors", "p50", "p95", "Longest"].map((name) => <th scope="col">{name}</th>)}</tr>
        </thead>
        <tbody>
          {answer.parts.map((part) => (
            <tr>
              <th scope="row"><button class="plain" onClick={() => zoom(part.at_ms, part.at_ms + answer.step_ms)}><time title={new Date(part.at_ms).toISOString()}>{clock(part.at_ms)}</time></button></th>
              <td>{part.calls.toLocaleString("en")}</td>
              <td>{refused(part)}</td>
              <td>{part.errors}</td>
              <td>{duration(part.latency_ms_p50)}</td>
              <td>{duration(part.latency_ms_p95)}</td>
              <td>{duration(part.latency_ms_max)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

type TopProps = { title: string; groups: Group[] | undefined; name: (group: Group) => string; to: (group: Group) => URLSearchParams };

function Top({ title, groups, name, to }: TopProps) {
  const most = Math.max(1, ...(groups ?? []).map((group) => group.calls));
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {!groups ? <p class="quiet">Counting …</p> : !groups.length && <p class="quiet">None.</p>}
      <ul class="bars">
        {groups?.map((group) => (
          <li>
            <a href={address("/", to(group))}><bdi>{oneLine(name(group))}</bdi></a>
            <span class="quiet">{count(group.calls, "call")}{refused(group) ? `, ${refused(group)} refused` : ""}{group.errors ? `, ${count(group.errors, "error")}` : ""}{group.latency_ms_p95 !== null ? `, p95 ${duration(group.latency_ms_p95)}` : ""}</span>
            <meter aria-hidden="true" min={0} max={most} value={group.calls} />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** By the hour of the local day. */
function Hours({ groups }: { groups: Group[] | undefined }) {
  const sums = Array.from({ length: 24 }, () => ({ calls: 0, refused: 0 }));
  for (const group of groups ?? []) {
    const sum = sums[new Date(`${group.hour}:00:00Z`).getHours()]!;
    sum.calls += group.calls;
    sum.refused += refused(group);
  }
  const most = Math.max(1, ...sums.map((sum) => sum.calls));
  return (
    <section aria-label="By the hour of the day">
      <h2>By the hour of the day</h2>
      <ul class="hours">
        {sums.map((sum, hour) => (
          <li title={`${hour}:00: ${count(sum.calls, "call")}, ${sum.refused} refused`}>
            <svg viewBox="0 0 10 60" role="img" aria-label={`${hour} o'clock: ${count(sum.calls, "call")}, ${sum.refused} refused`}>
              <rect class="all" x="1" width="8" y={60 - (sum.calls / most) * 60} height={(sum.calls / most) * 60} />
              <rect class="no" x="1" width="8" y={60 - (sum.refused / most) * 60} height={(sum.refused / most) * 60} />
            </svg>
            <span class="quiet" aria-hidden="true">{hour % 6 === 0 ? hour : ""}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
