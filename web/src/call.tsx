// Call: what was asked, what came back, and why it was decided so.
import { useEffect, useRef, useState } from "preact/hooks";
import { address, place } from "./address";
import type { CallPage, Explained, WholeCall } from "./api.gen";
import { useAnswer } from "./asked";
import { Decision, Status } from "./badge";
import { asking, fleet } from "./fleet";
import { callAddress } from "./live";
import { Copy, Fact, Moment, Trouble } from "./parts";
import { Promote } from "./promote";
import { Stream } from "./stream";
import { clock, duration, known, laidOut, oneLine, plain, quoted } from "./text";

type Predicate = Record<string, unknown>;
type Traced = { rule_id: string; kind: string; why: string; matched: boolean; decision: string | null; reason_code: string | null; predicates: Predicate[] };
type Judged = { policy: { policy_id: string; policy_version: string }; trace: Traced[]; certain: boolean; doubtful_rules: string[]; arguments: { why: string | null } };

export function Call() {
  const words = place.value.words;
  const id = words.get("call") ?? "";
  const which = new URLSearchParams();
  for (const [word, name] of [["run", "run_id"], ["shim", "shim_id"]] as const) if (words.get(word)) which.set(name, words.get(word)!);
  const path = `/v1/calls/${encodeURIComponent(id)}`;
  const [again, setAgain] = useState(0);
  const { answer: call, trouble } = useAnswer<WholeCall>(`${path}?${which}`, again);
  const ended = useRef(false);
  ended.current = call?.status != null;
  useEffect(() => {
    const filters = new URLSearchParams(words.get("run") ? { run_id: words.get("run")! } : {});
    const stream = new Stream(filters, () => undefined, () => ended.current || setAgain((n) => n + 1));
    return () => stream.close();
  }, [id]);
  if (trouble) return <main class="surface"><h1>Call <bdi>{oneLine(id)}</bdi></h1><Trouble text={trouble} /><p class="quiet">If it was there before, it may have been pruned.</p></main>;
  if (!call) return <main class="surface" aria-busy="true"><h1 class="sr">Call</h1></main>;
  const command = asking(`sub show ${quoted(call.call_id)} --run ${quoted(call.run_id)}`);
  return (
    <main class="surface scrolls">
      <h1>
        <bdi>{oneLine(call.tool_name)}</bdi> <span class="quiet">on <bdi>{oneLine(call.server_name)}</bdi></span> <Decision call={call} />
      </h1>
      <div class="bar">
        <Copy text={JSON.stringify(call, null, 2)} label="Copy as JSON" />
        <Copy text={command} label="Copy as sub show" />
        {!fleet.value && <Copy text={`sub policy explain --call ${quoted(call.call_id)} --run ${quoted(call.run_id)}`} label="Copy as sub policy explain" />}
        <a href={address("/run", { run: call.run_id })}>Its run</a>
      </div>
      <div class="columns">
        <section aria-labelledby="why">
          <h2 id="why">Why</h2>
          <dl class="facts">
            <Fact name="Decision">{call.decision ?? "not known yet"}{call.rule_id ? <> by rule <bdi>{oneLine(call.rule_id)}</bdi></> : " by no rule"}{call.severity && `, ${call.severity}`}</Fact>
            {call.reason_code && <Fact name="Reason"><bdi>{oneLine(call.reason_code)}</bdi>: <bdi>{plain(call.summary ?? "")}</bdi></Fact>}
            {call.would_action && <Fact name="Would">{call.would_action} by rule <bdi>{oneLine(call.would_rule_id ?? "")}</bdi>, had it been enforced</Fact>}
            {call.backoff_ms ? <Fact name="Backoff">{duration(call.backoff_ms)}</Fact> : null}
            {call.hint && <Fact name="Hint"><bdi>{plain(call.hint.hint_text ?? "")}</bdi></Fact>}
            {call.hint?.suggested_args !== null && call.hint?.suggested_args !== undefined && <Fact name="Try"><code><bdi>{plain(JSON.stringify(call.hint.suggested_args))}</bdi></code></Fact>}
            {call.policy && <Fact name="Policy"><bdi>{known(call.policy.policy_id)}</bdi> {oneLine(call.policy.policy_version ?? "")} <code>{call.policy.policy_hash?.slice(0, 12)}</code></Fact>}
          </dl>
          {call.rule && <><h3>The rule, as it was</h3><pre tabIndex={0}>{plain(JSON.stringify(call.rule, null, 2))}</pre></>}
          {call.policy && call.decision !== null && call.decision !== "ALLOW" && !fleet.value && <Promote call={call} />}
          {call.policy && <Explanation path={`${path}/explanation?${which}`} />}
        </section>
        <section aria-labelledby="what">
          <h2 id="what">What</h2>
          <Preview title="Arguments" text={call.args_preview} call={call} bytes={call.bytes_in} />
          <Preview title="Result" text={call.result_preview} call={call} bytes={call.bytes_out} />
          {call.error_message && call.decision === "ALLOW" && <p class="failed"><bdi>{plain(call.error_message)}</bdi></p>}
        </section>
        <section aria-labelledby="when">
          <h2 id="when">Who and when</h2>
          <dl class="facts">
            <Fact name="Status"><Status call={call} /> {call.error_class}</Fact>
            <Fact name="Agent"><bdi>{known(call.agent_id)}</bdi> ({call.client}, {call.env})</Fact>
            <Fact name="Principal"><bdi>{known(call.principal)}</bdi></Fact>
            <Fact name="Started"><Moment at={call.created_at} /></Fact>
            <Fact name="Took">{duration(call.latency_ms) || "not known yet"}{call.overhead_us !== null && `, ${call.overhead_us} µs of it in the shim`}{call.waited_ms ? `, ${duration(call.waited_ms)} between its legs` : ""}</Fact>
            <Fact name="Seen by">{call.doors.map((door) => `${known(door.transport)} (${door.decision ?? "pending"})`).join(", ")}</Fact>
            {call.tags.length > 0 && <Fact name="Tags"><bdi>{oneLine(call.tags.join(", "))}</bdi></Fact>}
            {call.observed && <Fact name="Observed">it had been carried out elsewhere when it was judged</Fact>}
            {call.continues && <Fact name="Continues"><bdi>{oneLine(call.continues)}</bdi></Fact>}
            <Fact name="Call"><code><bdi>{oneLine(call.call_id)}</bdi></code></Fact>
            <Fact name="Run"><a href={address("/run", { run: call.run_id })}><bdi>{oneLine(call.run_id)}</bdi></a></Fact>
          </dl>
          <h3>Events</h3>
          <ol class="legs">
            {call.events.map((event) => (
              <li>
                <details>
                  <summary>{oneLine(String(event.type))} <span class="quiet"><Moment at={String(event.ts)} /></span></summary>
                  <pre tabIndex={0}>{plain(JSON.stringify(event, null, 2))}</pre>
                </details>
              </li>
            ))}
          </ol>
          <Neighbours call={call} />
        </section>
      </div>
    </main>
  );
}

function Preview({ title, text, call, bytes }: { title: string; text: string | null; call: WholeCall; bytes: number | null }) {
  const masked = call.redaction_flags.length > 0;
  return (
    <>
      <h3>{title}{bytes !== null && <span class="quiet"> {bytes.toLocaleString("en")} bytes</span>}</h3>
      {text === null ? <p class="quiet">The record has none.</p> : <pre tabIndex={0} dir="auto">{plain(laidOut(text))}</pre>}
      {(call.preview_truncated || masked) && text !== null && (
        <p class="notice">
          {call.preview_truncated && "A preview of this call was cut. "}
          {masked && `Masked: ${oneLine(call.redaction_flags.join(", "))}.`}
        </p>
      )}
    </>
  );
}

function Explanation({ path }: { path: string }) {
  const { answer, trouble } = useAnswer<Explained>(path);
  if (trouble) return <p class="quiet">{plain(trouble)}</p>;
  if (!answer) return <p class="quiet">Asking which rules were asked …</p>;
  if (answer.unknown.length) return <p class="notice">{fleet.value ? "Neither the collector nor this machine has" : "The ledger does not have"} the text of this policy version, so what each rule said cannot be told.</p>;
  return (
    <>
      {(answer.policies as unknown as Judged[]).map((judged) => (
        <>
          <h3>What was asked</h3>
          {!judged.certain && <p class="notice">Not certain: {plain(judged.arguments.why ?? "")}; in doubt: {oneLine(judged.doubtful_rules.join(", "))}.</p>}
          <ol class="asked">
            {judged.trace.map((rule) => (
              <li class={rule.matched ? "matched" : ""}>
                <bdi>{oneLine(rule.rule_id)}</bdi> <span class="quiet">{rule.kind}</span> <bdi>{plain(rule.why)}</bdi>
                {rule.decision && <strong> → {rule.decision}</strong>}
                {rule.predicates.length > 0 && (
                  <ul>
                    {rule.predicates.map((one) => (
                      <li><code><bdi>{plain(JSON.stringify(one))}</bdi></code></li>
                    ))}
                  </ul>
                )}
              </li>
            ))}
          </ol>
        </>
      ))}
    </>
  );
}

function Neighbours({ call }: { call: WholeCall }) {
  const { answer } = useAnswer<CallPage>(`/v1/calls?${new URLSearchParams({ args_hash: call.args_hash, limit: "11" })}`);
  const others = answer?.rows.filter((other) => other.call_id !== call.call_id || other.run_id !== call.run_id) ?? [];
  if (!others.length) return null;
  return (
    <>
      <h3>With the same arguments</h3>
      <ul class="legs">
        {others.slice(0, 10).map((other) => (
          <li>
            <a href={callAddress(other)}><bdi>{oneLine(`${other.server_name}/${other.tool_name}`)}</bdi> <time>{clock(other.created_at)}</time></a> <Decision call={other} />
          </li>
        ))}
      </ul>
    </>
  );
}
