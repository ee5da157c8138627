// Tools: what servers say of them, how that stands, and how it changed. What shows nothing is spelled out.
import { useSignal } from "@preact/signals";
import { useState } from "preact/hooks";
import { address, go, place, set } from "./address";
import type { Tools as Known, WholeTool } from "./api.gen";
import { useAnswer } from "./asked";
import { Confirmed } from "./confirm";
import { Diff } from "./diff";
import { type Column, List } from "./list";
import { Copy, Fact, Moment, Trouble } from "./parts";
import { clock, count, oneLine, plain, quoted } from "./text";
import { write } from "./write";

type Tool = Known["tools"][number];

const keyOf = (tool: Pick<Tool, "server_name" | "key">): string => `${tool.server_name}/${tool.key}`;
const STATES: Record<string, string> = { changed: "throttle", quarantined: "block", new: "reject_with_hint", pinned: "allow" };

const State = ({ tool }: { tool: Pick<Tool, "state" | "unsteady"> }) => (
  <span class={`badge ${STATES[tool.state] ?? ""}`}>{tool.state}{tool.unsteady && ", unsteady"}</span>
);

const COLUMNS: Column<Tool>[] = [
  { name: "Tool", class: "name", cell: (tool) => <bdi>{oneLine(keyOf(tool))}</bdi> },
  { name: "State", cell: (tool) => <State tool={tool} /> },
  { name: "Classes", class: "wide", cell: (tool) => oneLine(Object.keys(tool.classes).join(" ")) },
  { name: "Calls", class: "number", cell: (tool) => tool.calls?.toLocaleString("en") ?? "" },
  { name: "Refused", class: "number wide", cell: (tool) => tool.refused?.toLocaleString("en") ?? "" },
  { name: "First seen", class: "wider", cell: (tool) => <time title={`${tool.first_seen} (UTC)`}>{clock(tool.first_seen)}</time> },
  { name: "Last seen", class: "wide", cell: (tool) => <time title={`${tool.last_seen} (UTC)`}>{clock(tool.last_seen)}</time> },
];

export function Tools() {
  const words = place.value.words;
  const directory = new URLSearchParams(words.get("directory") ? { directory: words.get("directory")! } : {});
  const [again, setAgain] = useState(0);
  const { answer, trouble } = useAnswer<Known>(`/v1/tools?${directory}`, again);
  const active = useSignal<string | null>(null);
  const [server, key] = [words.get("server"), words.get("key")];
  const waiting = answer?.tools.filter((tool) => tool.changed).length ?? 0;
  const shown = answer?.tools.filter((tool) => words.get("only") !== "changed" || tool.changed) ?? [];
  return (
    <main class="surface">
      <h1>Tools</h1>
      <div class="bar">
        <span>{answer ? `${count(answer.tools.length, "thing")} that servers say, ${waiting} changed` : "Looking …"}</span>
        <label>
          <input
            type="checkbox"
            checked={words.get("only") === "changed"}
            onChange={(event) => go(address("/tools", set(words, "only", event.currentTarget.checked ? ["changed"] : [])), true)}
          />{" "}
          only what has changed
        </label>
        <Copy text="sub tools" label="Copy as sub tools" />
      </div>
      {trouble && <Trouble text={trouble} />}
      {server !== null && key !== null && <One key={`${server}/${key}`} server={server} tool={key} directory={directory} changed={() => setAgain((n) => n + 1)} />}
      {shown.length ? (
        <List
          label="Tools"
          rows={shown}
          version={again}
          columns={COLUMNS}
          layout="var(--tools)"
          keyOf={keyOf}
          active={active.value ?? (server !== null ? `${server}/${key}` : null)}
          onActive={(tool) => (active.value = keyOf(tool))}
          onOpen={(tool) => go(address("/tools", set(set(words, "server", [tool.server_name]), "key", [tool.key])))}
        />
      ) : (
        answer && <p class="empty">No server has been seen here yet, or nothing has changed.</p>
      )}
    </main>
  );
}

function One({ server, tool: key, directory, changed }: { server: string; tool: string; directory: URLSearchParams; changed: () => void }) {
  const [again, setAgain] = useState(0);
  const { answer: tool, trouble } = useAnswer<WholeTool>(`/v1/tool?${new URLSearchParams([...directory, ["server_name", server], ["key", key]])}`, again);
  if (trouble) return <Trouble text={trouble} />;
  if (!tool) return null;
  const approve = async () => {
    await write(`/v1/tools/approve?${directory}`, { server_name: server, key, fingerprint: tool.fingerprint });
    setAgain((n) => n + 1);
    changed();
    return "Approved.";
  };
  return (
    <section class="card opened" aria-labelledby="tool">
      <h2 id="tool"><bdi>{oneLine(keyOf(tool))}</bdi> <State tool={tool} /></h2>
      {tool.why && <p class="notice"><bdi>{plain(tool.why)}</bdi></p>}
      <dl class="facts">
        {tool.pinned_by.length > 0 && <Fact name="Pinned by">{tool.pinned_by.join(" and ")}</Fact>}
        {Object.entries(tool.classes).map(([word, origin]) => <Fact name={oneLine(word)}>by {oneLine(String(origin))}</Fact>)}
        {tool.findings.map((finding) => <Fact name={oneLine(finding.class)}><bdi>{plain(`${finding.where}: ${finding.what}`)}</bdi></Fact>)}
      </dl>
      {tool.diff.length > 0 && (
        <>
          <h3>Against what was approved or pinned</h3>
          <Diff lines={tool.diff} label="What has changed" />
        </>
      )}
      <div class="bar">
        {tool.changed && (
          <Confirmed label="Approve" title="Accept this change?" act={approve}>
            <p>From then on <bdi>{oneLine(keyOf(tool))}</bdi> is compared with what it says now; where it is pinned, the pin moves as well. The approval is recorded.</p>
            <Diff lines={tool.diff} label="What is accepted" />
          </Confirmed>
        )}
        <Copy text={`sub tools show ${quoted(keyOf(tool))}`} label="Copy as sub tools show" />
        <a href={address("/", { server, ...(tool.kind === "tool" ? { tool: tool.name } : {}) })}>Its calls</a>
      </div>
      <details open={!tool.diff.length}>
        <summary>What is said now</summary>
        <pre tabIndex={0} dir="auto">{plain(tool.lines.join("\n"))}</pre>
      </details>
      <h3>History</h3>
      <ol class="legs">
        {tool.versions.map((version, at) => (
          <li>
            <Moment at={version.at} /> <span class="quiet">{oneLine(version.client)}, run <a href={address("/run", { run: version.run_id })}><bdi>{oneLine(version.run_id)}</bdi></a></span>{" "}
            <code>{version.fingerprint.slice(0, 12)}</code>
            {version.lines.length > 0 && <Diff lines={version.lines} label={`Change ${at}`} />}
          </li>
        ))}
      </ol>
    </section>
  );
}
