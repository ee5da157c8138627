// What was decided and how it ended, as a word with a sign: never by colour alone.
import type { CallRow } from "./api.gen";

const SIGNS: Record<string, [sign: string, word: string]> = {
  ALLOW: ["✓", "allow"],
  BLOCK: ["✕", "block"],
  REJECT_WITH_HINT: ["↩", "hint"],
  THROTTLE: ["◷", "throttle"],
  TERMINATE_RUN: ["■", "terminate"],
};

type Told = Pick<CallRow, "decision" | "status" | "observed">;

export const isError = (call: Told): boolean => call.decision === "ALLOW" && call.status !== null && call.status !== "OK";

/** The class of its colour. */
export const tone = (call: Told): string =>
  call.decision === null ? "pending" : isError(call) ? "error" : call.decision.toLowerCase();

export function Decision({ call }: { call: Told }) {
  const [sign, word] = SIGNS[call.decision ?? ""] ?? ["…", "pending"];
  return (
    <span class={`badge ${call.decision?.toLowerCase() ?? "pending"}`} title={call.decision ?? "not decided yet"}>
      <span aria-hidden="true">{sign}</span> {word}
    </span>
  );
}

/** How a call that was let through ended. */
export function Status({ call }: { call: Told }) {
  if (call.decision !== null && call.decision !== "ALLOW") return <span class="quiet">–</span>;
  if (call.status === null) return <span class="quiet">running</span>;
  return <span class={isError(call) ? "failed" : ""}>{call.status}</span>;
}
