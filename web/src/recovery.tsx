// Recovery: how many of its refusals a run corrected, of those that count. What the words mean: docs/control.md.
import type { Recoveries, RunRow } from "./api.gen";
import { aboutRuns, ask } from "./ask";
import { fleet } from "./fleet";
import { count } from "./text";

export type Recovered = Recoveries["runs"][number];

type Refusing = Pick<RunRow, "run_id" | "calls_total" | "calls_blocked" | "calls_throttled" | "event_count">;

/** Following calls takes as long as there are many: no question is about more than so many, but for a single run's. */
const AT_ONCE = 20_000;
const MOST_RUNS = 100;

export const refused = (run: Pick<RunRow, "calls_blocked" | "calls_throttled">): number => run.calls_blocked + run.calls_throttled;

export const share = (rate: number | null): string => (rate === null ? "–" : `${Math.round(rate * 100)} %`);

/** In words, for whoever hears it or points at it. */
export function told(run: Pick<RunRow, "calls_blocked" | "calls_throttled">, found: Recovered | undefined): string {
  if (!refused(run)) return "nothing was refused";
  if (!found) return "recovery is not known yet";
  if (found.counted === null) return fleet.value ? "too many calls to follow" : "too many calls to follow; sub hints tells";
  if (found.recovery_rate === null) return "no refusal counts yet";
  return `recovery ${share(found.recovery_rate)}, ${found.corrected} of ${count(found.counted, "refusal")} corrected`;
}

export function Recovery({ run, found }: { run: Pick<RunRow, "calls_blocked" | "calls_throttled">; found: Recovered | undefined }) {
  const words = told(run, found);
  return (
    <span class={found?.counted ? undefined : "quiet"} title={words}>
      <span aria-hidden="true">{share(found?.recovery_rate ?? null)}</span>
      <span class="sr">{words}</span>
    </span>
  );
}

/** Asks for runs with refusals, each anew only when something of it was heard; `take` gets what is found, as it comes. */
export class Following {
  private known = new Map<string, number>();
  private wanted = new Map<string, Refusing>();
  private busy = false;

  constructor(private take: (found: Recovered[]) => void, private fail: (error: unknown) => void, private stop: AbortSignal) {}

  follow(runs: Refusing[]): void {
    for (const run of runs) if (refused(run) && this.known.get(run.run_id) !== run.event_count) this.wanted.set(run.run_id, run);
    if (!this.busy) void this.work();
  }

  private async work(): Promise<void> {
    this.busy = true;
    try {
      while (this.wanted.size && !this.stop.aborted) {
        const runs = this.some();
        const began = performance.now();
        for (const question of aboutRuns("/v1/recovery", runs.map((run) => run.run_id))) this.take((await ask<Recoveries>(question, this.stop)).runs);
        for (const run of runs) this.known.set(run.run_id, run.event_count);
        // At most half of the time: a run that goes on has news all the while, and others ask as well.
        await new Promise((done) => setTimeout(done, performance.now() - began));
      }
    } catch (error) {
      this.wanted.clear();
      if (!this.stop.aborted) this.fail(error);
    } finally {
      this.busy = false;
    }
  }

  private some(): Refusing[] {
    const found: Refusing[] = [];
    let calls = 0;
    for (const run of this.wanted.values()) {
      calls += run.calls_total;
      if (found.length === MOST_RUNS || (found.length && calls > AT_ONCE)) break;
      found.push(run);
    }
    for (const run of found) this.wanted.delete(run.run_id);
    return found;
  }
}
