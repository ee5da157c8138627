// Policy: what is in force, as it is written, with what each rule has done; and what changed between two versions.
import { address, go, place, set } from "./address";
import { CALL_FILTERS, type Policies, type PolicyDiff } from "./api.gen";
import { useAnswer } from "./asked";
import { Diff } from "./diff";
import { Moment, Trouble } from "./parts";
import { clock, count, known, oneLine, plain } from "./text";

type InForce = Policies["policies"][number];
type Part = InForce["parts"][number];
type Version = Policies["versions"][number];

const wordsOf = (name: string): string[] => CALL_FILTERS.find((filter) => filter.name === name)!.words;

export function Policy() {
  const words = place.value.words;
  const asking = new URLSearchParams();
  for (const name of ["directory", "client", "env"]) if (words.get(name)) asking.set(name, words.get(name)!);
  const { answer, trouble } = useAnswer<Policies>(`/v1/policies?${asking}`);
  return (
    <main class="surface scrolls">
      <h1>Policy</h1>
      <form
        class="filters"
        role="search"
        aria-label="Where"
        onSubmit={(event) => {
          event.preventDefault();
          const typed = new FormData(event.currentTarget).get("directory");
          go(address("/policy", set(words, "directory", [String(typed ?? "")])));
        }}
      >
        <label>Directory <input type="text" name="directory" value={words.get("directory") ?? answer?.directory ?? ""} /></label>
        {(["client", "env"] as const).map((name) => (
          <label>
            {name}{" "}
            <select value={words.get(name) ?? ""} onChange={(event) => go(address("/policy", set(words, name, [event.currentTarget.value])))}>
              <option value="">unknown</option>
              {wordsOf(name).filter((word) => word !== "unknown").map((word) => <option value={word}>{word}</option>)}
            </select>
          </label>
        ))}
        <button type="submit">Look there</button>
      </form>
      {trouble && <Trouble text={trouble} />}
      {answer && (
        <>
          <p>{stacking(answer.policies)}</p>
          {answer.policies.map((policy) => <Stacked policy={policy} />)}
          <Versions versions={answer.versions} />
        </>
      )}
    </main>
  );
}

/** How they stack, in a sentence. */
function stacking(policies: InForce[]): string {
  if (!policies.length) return "No policy is in force there: every call is allowed and recorded. `sub policy init` writes one.";
  if (policies.some((policy) => !policy.valid)) return "One does not load: every tool call is refused until it is mended.";
  const applied = policies.filter((policy) => policy.applies);
  if (!applied.length) return "None applies to such a run: every call is allowed and recorded.";
  const observes = applied.every((policy) => policy.mode === "observe") ? " Nothing is refused: it is only observed." : "";
  if (applied.length === 1) return `Every call is judged by ${applied[0]!.policy_id}.${observes} A run can add a policy of its own.`;
  return `Every call is judged by each, in this order, and the strictest decision wins: one can tighten another and never loosen it.${observes}`;
}

function Stacked({ policy }: { policy: InForce }) {
  return (
    <section class="card" aria-label={`Policy ${policy.order}`}>
      <h2>
        {policy.order}. <bdi>{known(policy.policy_id)}</bdi> {oneLine(policy.policy_version ?? "")}{" "}
        <span class="quiet">{policy.origin}, {policy.mode ?? "does not load"}</span>
      </h2>
      <p class="quiet"><bdi>{oneLine(policy.path ?? "in the environment")}</bdi> {policy.policy_hash && <code>{policy.policy_hash.slice(0, 12)}</code>}</p>
      {policy.left_out && <p class="notice">It does not apply to such a run: <bdi>{plain(policy.left_out)}</bdi></p>}
      {policy.error && <Trouble text={policy.error} />}
      {policy.findings.map((finding) => (
        <p class="failed">Line {finding.line}: <bdi>{plain(finding.message)}</bdi> <span class="quiet"><bdi>{plain(finding.fix)}</bdi></span></p>
      ))}
      {policy.parts.map((part) => <Written part={part} />)}
    </section>
  );
}

/** A rule as its author wrote it, and what it has done. */
function Written({ part }: { part: Part }) {
  return (
    <div class="written">
      <pre tabIndex={0} dir="auto" aria-label={part.rule_id === null ? "Before the rules" : `Rule ${oneLine(part.rule_id)}`}>{plain(part.text)}</pre>
      {part.deeds && part.rule_id !== null && (
        <p>
          <strong><bdi>{oneLine(part.rule_id)}</bdi></strong>{" "}
          {part.deeds.decided || part.deeds.would ? (
            <a href={address("/", { rule: part.rule_id })}>
              decided {count(part.deeds.decided, "call")}, refused {part.deeds.refused.toLocaleString("en")}
            </a>
          ) : (
            <span class="quiet">has decided nothing yet</span>
          )}
          {part.deeds.would !== null && <>, would have decided {part.deeds.would.toLocaleString("en")}</>}
          {part.deeds.trips > 0 && <>, <span class="failed">tripped {count(part.deeds.trips, "time")}</span> in its latest runs</>}
          {part.deeds.last && <span class="quiet">, last <Moment at={part.deeds.last} /></span>}
        </p>
      )}
    </div>
  );
}

const title = (version: Version): string =>
  `${oneLine(version.policy_id)} ${oneLine(version.policy_version)} (${version.policy_hash.slice(0, 8)}, ${clock(version.created_at)}${version.stored ? "" : ", text not stored"})`;

function Versions({ versions }: { versions: Version[] }) {
  const words = place.value.words;
  const choose = (name: string, value: string) => go(address("/policy", set(words, name, [value])));
  const [old, fresh] = [words.get("old"), words.get("new")];
  return (
    <section class="card" aria-labelledby="versions">
      <h2 id="versions">Versions</h2>
      {versions.length < 2 ? (
        <p class="quiet">The ledger has heard of {count(versions.length, "version")}: there is nothing to compare yet.</p>
      ) : (
        <div class="bar">
          {(["old", "new"] as const).map((name) => (
            <label>
              {name === "old" ? "From" : "to"}{" "}
              <select value={words.get(name) ?? ""} onChange={(event) => choose(name, event.currentTarget.value)}>
                <option value="">choose a version</option>
                {versions.map((version) => <option value={version.policy_hash} disabled={!version.stored}>{title(version)}</option>)}
              </select>
            </label>
          ))}
        </div>
      )}
      {old && fresh && <Changed old={old} fresh={fresh} />}
    </section>
  );
}

function Changed({ old, fresh }: { old: string; fresh: string }) {
  const { answer, trouble } = useAnswer<PolicyDiff>(`/v1/policies/diff?${new URLSearchParams({ old, new: fresh })}`);
  if (trouble) return <Trouble text={trouble} />;
  if (!answer) return <p class="quiet">Comparing …</p>;
  if (!answer.changes.length) return <p>They decide alike: what differs is at most wording.</p>;
  return (
    <>
      <ul class="changes">
        {answer.changes.map((change) => (
          <li>
            <span class={`badge ${change.severity}`}>{change.severity}</span> <bdi>{oneLine(change.rule_id ?? "policy")}</bdi>: <bdi>{plain(change.summary)}</bdi>{" "}
            <span class="quiet">{change.direction}</span>
          </li>
        ))}
      </ul>
      <details>
        <summary>Line by line</summary>
        <Diff lines={answer.lines} label="Difference of the two versions" />
      </details>
    </>
  );
}
