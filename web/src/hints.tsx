// Hints: which rules refused, and what the agents did next. What the words mean: docs/control.md.
import { useMemo } from "preact/hooks";
import { address, asked, place } from "./address";
import { HINT_FILTERS, type Hints as Ledger } from "./api.gen";
import { useAnswer } from "./asked";
import { command, Filters } from "./filters";
import { callAddress } from "./live";
import { Copy, Moment, Trouble } from "./parts";
import { share } from "./recovery";
import { count, oneLine, plain } from "./text";

type Rule = Ledger["rules"][number];
type Outcome = keyof Rule["outcomes"];

const WORDS: [Outcome, string][] = [
  ["corrected", "corrected"], ["repeated", "repeated"], ["other_tool", "other tool"], ["gave_up", "gave up"], ["ended", "ended"],
  ["promoted", "promoted"], ["open", "open"],
];
const said = (outcome: Outcome): string => WORDS.find(([word]) => word === outcome)![1];

export function Hints() {
  const words = place.value.words;
  const given = words.toString();
  const filters = useMemo(() => asked(words, HINT_FILTERS), [given]);
  const { answer, trouble } = useAnswer<Ledger>(typeof filters === "string" ? null : `/v1/hints?${filters}`);
  const told = typeof filters === "string" ? filters : trouble;
  return (
    <main class="surface scrolls">
      <h1>Hints</h1>
      <Filters table={HINT_FILTERS} path="/hints" />
      <div class="bar">
        <span class="quiet">Recovery: of the refusals that count, how many the agent corrected</span>
        <Copy text={command(HINT_FILTERS, words, "hints")} label="Copy as sub hints" />
      </div>
      {told && <Trouble text={told} />}
      {!answer && !told && <p class="quiet">Following what came after each refusal …</p>}
      {answer && !answer.rules.length && <p class="empty">Nothing was refused{given ? " that matches" : " yet"}.</p>}
      {answer?.rules.map((rule) => <Refusing rule={rule} />)}
    </main>
  );
}

function Refusing({ rule }: { rule: Rule }) {
  const name = oneLine(rule.rule_id ?? rule.reason_code);
  return (
    <section class="card" aria-label={`Rule ${name}`}>
      <h2>
        <bdi>{name}</bdi> <span class="quiet"><bdi>{oneLine(rule.reason_code)}</bdi>, {Object.keys(rule.actions).map(oneLine).join(", ")}</span>
      </h2>
      <dl class="tiles">
        <Tile name="recovery" value={share(rule.recovery_rate)} />
        <Tile name="refused" value={rule.refused.toLocaleString("en")} />
        <Tile name="calls to recovery" value={rule.calls_to_recovery === null ? "–" : rule.calls_to_recovery.toFixed(1)} />
        <Tile name="as hinted" value={rule.as_hinted.toLocaleString("en")} />
      </dl>
      <p>
        {WORDS.filter(([word]) => rule.outcomes[word]).map(([word, text]) => `${text} ${rule.outcomes[word].toLocaleString("en")}`).join(", ")};{" "}
        in {count(rule.runs, "run")}, last <Moment at={rule.last_at} />
        {rule.by_time > 0 && <span class="quiet">; of {rule.by_time.toLocaleString("en")} only times tell what followed</span>}
      </p>
      <p class="quiet">
        <bdi>{oneLine(rule.tools.map((one) => `${one.tool} (${one.refused})`).join(", "))}</bdi>; agents{" "}
        <bdi>{oneLine(rule.agents.map((one) => `${one.agent_id} (${one.refused})`).join(", "))}</bdi>
      </p>
      {rule.hints.length > 0 && (
        <>
          <h3>What they were told</h3>
          <ul class="legs">
            {rule.hints.map((hint) => (
              <li>
                <bdi>{plain(hint.hint_text)}</bdi> <span class="quiet">told {count(hint.refused, "time")}, recovery {share(hint.recovery_rate)}{hint.as_hinted ? `, ${hint.as_hinted} exactly as hinted` : ""}</span>
              </li>
            ))}
          </ul>
        </>
      )}
      <h3>Examples</h3>
      <ul class="legs">
        {rule.examples.map((one) => (
          <li>
            <a href={callAddress(one)}><bdi>{oneLine(one.tool)}</bdi></a> <Moment at={one.at} /> <strong>{said(one.outcome)}</strong>
            {one.next_call_id !== null && one.next_tool !== null && <>, then <a href={callAddress({ call_id: one.next_call_id, run_id: one.run_id })}><bdi>{oneLine(one.next_tool)}</bdi></a></>}
            {one.summary && <span class="quiet"> <bdi>{plain(one.summary)}</bdi></span>}
          </li>
        ))}
      </ul>
      {rule.rule_id !== null && <a href={address("/", { rule: rule.rule_id })}>All of its calls</a>}
    </section>
  );
}

const Tile = ({ name, value }: { name: string; value: string }) => (
  <div class="tile">
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
);
