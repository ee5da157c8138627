// Compare: two runs side by side, call by call, and where their decisions differ.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { address, go, place, set } from "./address";
import { align, type Aligned } from "./align";
import type { CallRow, Recoveries, Timeline as Items, WholeRun } from "./api.gen";
import { useAnswer } from "./asked";
import { Decision, Status, tone } from "./badge";
import { type Column, List } from "./list";
import { callAddress } from "./live";
import { Trouble } from "./parts";
import { refused, told } from "./recovery";
import { lasted } from "./runs";
import { clock, count, duration, known, oneLine } from "./text";

type Call = CallRow & { at: string; kind: string };
type Pair = Aligned<Call> & { key: string; what: string };

const decided = (call: Call): string => `${call.decision} ${call.rule_id}`;

/** What differs between the two, in a word. */
function difference({ left, right }: Aligned<Call>): string {
  if (!left) return "only right";
  if (!right) return "only left";
  if (decided(left) !== decided(right)) return "decision differs";
  if (left.args_hash !== right.args_hash) return "arguments differ";
  return left.status === right.status ? "same" : "end differs";
}

const Side = ({ call }: { call: Call | null }) => (call ? <><Decision call={call} /> <Status call={call} /></> : <span class="quiet">–</span>);

const COLUMNS: Column<Pair>[] = [
  { name: "Tool", class: "name", cell: ({ left, right }) => <bdi>{oneLine(`${(left ?? right)!.server_name}/${(left ?? right)!.tool_name}`)}</bdi> },
  { name: "Left", cell: ({ left }) => <Side call={left} /> },
  { name: "Right", cell: ({ right }) => <Side call={right} /> },
  { name: "Took", class: "number wide", cell: ({ left }) => duration(left?.latency_ms) },
  { name: "Took", class: "number wide", cell: ({ right }) => duration(right?.latency_ms) },
  { name: "Rule", class: "wider", cell: ({ left, right }) => <bdi>{oneLine([...new Set([left?.rule_id, right?.rule_id])].filter(Boolean).join(" / "))}</bdi> },
  { name: "What", class: "wide", cell: ({ what }) => <span class={what === "same" ? "quiet" : what.startsWith("decision") ? "refused" : ""}>{what}</span> },
];

function useRun(id: string) {
  const path = `/v1/runs/${encodeURIComponent(id)}`;
  const run = useAnswer<WholeRun>(id ? path : null);
  const items = useAnswer<Items>(id ? `${path}/timeline` : null);
  const recovery = useAnswer<Recoveries>(run.answer && refused(run.answer) ? `/v1/recovery?${new URLSearchParams({ run_id: id })}` : null);
  const calls = useMemo(() => (items.answer?.items ?? []).filter((item) => item.kind === "call") as unknown as Call[], [items.answer]);
  return { run: run.answer, recovery: recovery.answer?.runs[0], calls, whole: items.answer?.whole ?? true, ready: items.answer !== null, trouble: run.trouble || items.trouble };
}

export function Compare() {
  const words = place.value.words;
  const [left, right] = [useRun(words.get("run") ?? ""), useRun(words.get("with") ?? "")];
  const only = words.get("only") === "differences";
  const active = useSignal<string | null>(null);
  const pairs = useMemo(
    () =>
      align(left.calls, right.calls, (call) => `${call.server_name}\0${call.tool_name}\0${call.args_hash}`, (call) => `${call.server_name}\0${call.tool_name}`).map(
        (pair, at): Pair => ({ ...pair, key: String(at), what: difference(pair) }),
      ),
    [left.calls, right.calls],
  );
  const shown = only ? pairs.filter((pair) => pair.what !== "same") : pairs;
  const tally = (what: string): number => pairs.filter((pair) => pair.what === what).length;
  const trouble = left.trouble || right.trouble;
  return (
    <main class="surface">
      <h1>Two runs</h1>
      {trouble && <Trouble text={trouble} />}
      {!words.get("with") && <Trouble text="Choose two runs: mark them in the list of runs." />}
      <div class="sides">
        {([["Left", left], ["Right", right]] as const).map(
          ([side, { run, recovery }]) =>
            run && (
              <p>
                <strong>{side}</strong>{" "}
                <a href={address("/run", { run: run.run_id })}><bdi>{oneLine(run.run_id)}</bdi></a> <bdi>{known(run.agent_id)}</bdi>,{" "}
                <span class={`badge ${run.status.toLowerCase()}`}>{run.status.toLowerCase()}</span>, {clock(run.started_at)}, {duration(lasted(run))};{" "}
                {count(run.calls_total, "call")}, {refused(run)} refused{refused(run) > 0 && ` (${told(run, recovery)})`}, {count(run.errors_total, "error")};{" "}
                policy <bdi>{known(run.policy_id)}</bdi> {oneLine(run.policy_version ?? "")}
              </p>
            ),
        )}
      </div>
      {(!left.whole || !right.whole) && <p class="notice">One of them is too large to be compared here.</p>}
      <div class="bar">
        <label>
          <input
            type="checkbox"
            checked={only}
            onChange={(event) => go(address("/compare", set(words, "only", event.currentTarget.checked ? ["differences"] : [])), true)}
          />{" "}
          only what differs
        </label>
        <span role="status">
          {left.ready && right.ready && `${tally("same")} the same, ${tally("decision differs")} decided otherwise, ${tally("arguments differ")} with other arguments, ${tally("only left")} only left, ${tally("only right")} only right`}
        </span>
        <a href={address("/compare", { run: words.get("with") ?? "", with: words.get("run") ?? "" })}>Change sides</a>
      </div>
      <List
        label="Calls of both, aligned"
        rows={shown}
        version={0}
        columns={COLUMNS}
        layout="var(--pairs)"
        keyOf={(pair) => pair.key}
        tone={(pair) => tone((pair.left ?? pair.right)!)}
        active={active.value}
        onActive={(pair) => (active.value = pair.key)}
        onOpen={(pair) => go(callAddress((pair.left ?? pair.right)!))}
      />
    </main>
  );
}
