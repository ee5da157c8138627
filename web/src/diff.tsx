// Lines of a difference, each with its sign: never by colour alone.
import { plain } from "./text";

const KINDS: Record<string, string> = { "+": "added", "-": "removed", "@": "place" };

export const Diff = ({ lines, label }: { lines: string[]; label: string }) => (
  <pre class="diff" tabIndex={0} role="group" aria-label={label}>
    {lines.map((line) => (
      <span class={KINDS[line[0] ?? ""] ?? ""}>{plain(line)}{"\n"}</span>
    ))}
  </pre>
);
