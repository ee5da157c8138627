// Promote: let a refused call through, for its run or for good. What would be done is shown before anything is.
import { useState } from "preact/hooks";
import type { Proposal, WholeCall } from "./api.gen";
import { useAnswer } from "./asked";
import { Confirmed } from "./confirm";
import { Diff } from "./diff";
import { Trouble } from "./parts";
import { inFile } from "./record";
import { count, oneLine, plain } from "./text";
import { write } from "./write";

type Scope = "session" | "persist";
type Past = { calls?: number; runs?: number; newly_allowed_total?: number; newly_refused_total?: number };

const SCOPES: [Scope, string][] = [["session", "For its run"], ["persist", "For good, in the policy"]];

export function Promote({ call }: { call: WholeCall }) {
  const [scope, setScope] = useState<Scope | null>(null);
  if (inFile) return null;
  return (
    <>
      <h3>Let it through</h3>
      <div class="bar" role="group" aria-label="Let it through">
        {SCOPES.map(([one, name]) => (
          <button aria-pressed={scope === one} onClick={() => setScope(scope === one ? null : one)}>{name} …</button>
        ))}
      </div>
      {scope && <Proposed key={scope} call={call} scope={scope} />}
    </>
  );
}

function Proposed({ call, scope }: { call: WholeCall; scope: Scope }) {
  const which = { call_id: call.call_id, run_id: call.run_id, ...(call.shim_id ? { shim_id: call.shim_id } : {}) };
  const { answer, trouble } = useAnswer<Proposal>(`/v1/promote?${new URLSearchParams({ ...which, scope })}`);
  if (trouble) return <Trouble text={trouble} />;
  if (!answer) return <p class="quiet" role="status">{scope === "persist" ? "Judging past calls with the change …" : "Looking for the narrowest rule …"}</p>;
  const past = answer.past as Past | undefined;
  const act = async () => {
    await write("/v1/promote", { ...which, scope, seen: answer.seen });
    return scope === "persist" ? "Written. Runs that are on obey within a second." : "It holds for this run from the next call on.";
  };
  return (
    <div class="written">
      <p><bdi>{plain(answer.summary)}</bdi></p>
      {answer.notes.map((one) => <p class="notice"><bdi>{plain(one)}</bdi></p>)}
      {answer.text_diff ? (
        <Diff lines={answer.text_diff.split("\n")} label="What changes in the policy" />
      ) : (
        <pre tabIndex={0}>{plain(JSON.stringify(answer.rule ?? answer.limits, null, 2))}</pre>
      )}
      {past && (
        <p>
          Of {count(past.calls ?? 0, "past call")} in {count(past.runs ?? 0, "run")}, it would let {(past.newly_allowed_total ?? 0).toLocaleString("en")} more through and refuse{" "}
          {(past.newly_refused_total ?? 0).toLocaleString("en")} more.
        </p>
      )}
      {answer.tests_failed && answer.tests_failed.length > 0 && <Trouble text={`Tests of the policy that would fail: ${answer.tests_failed.join(", ")}`} />}
      {answer.tests ? <p class="quiet">{count(answer.tests, "test")} of the policy ran with it.</p> : null}
      <Confirmed label="Promote" title={scope === "persist" ? "Change the policy?" : "Let calls like this through for its run?"} act={act}>
        <p><bdi>{plain(answer.summary)}</bdi> {answer.file && <>In <bdi>{oneLine(answer.file)}</bdi>.</>} It is recorded in the run of the call.</p>
      </Confirmed>
    </div>
  );
}
