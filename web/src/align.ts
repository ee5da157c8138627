// Two runs side by side: which call of one is which of the other. The longest common sequence of calls with the same
// arguments comes first; between those, calls of the same tool are taken for each other, in order.

export type Aligned<Call> = { left: Call | null; right: Call | null };
type Key<Call> = (call: Call) => string;

/** Differences looked for; where there are more, what is left is paired by order. Time and memory grow with its square. */
const MOST_DIFFERENCES = 1_500;

/** Pairs of places that are the same, in order (Myers). Null: there are too many differences. */
function common(left: string[], right: string[]): [number, number][] | null {
  const most = Math.min(left.length + right.length, MOST_DIFFERENCES);
  const reach = new Int32Array(2 * most + 3);
  const middle = most + 1;
  const traces: Int32Array[] = [];
  for (let changes = 0; changes <= most; changes++) {
    traces.push(reach.slice(middle - changes - 1, middle + changes + 2));
    for (let lane = -changes; lane <= changes; lane += 2) {
      const down = lane === -changes || (lane !== changes && reach[middle + lane - 1]! < reach[middle + lane + 1]!);
      let x = down ? reach[middle + lane + 1]! : reach[middle + lane - 1]! + 1;
      let y = x - lane;
      while (x < left.length && y < right.length && left[x] === right[y]) x++, y++;
      reach[middle + lane] = x;
      if (x >= left.length && y >= right.length) return walkBack(traces, left.length, right.length);
    }
  }
  return null;
}

function walkBack(traces: Int32Array[], width: number, height: number): [number, number][] {
  const pairs: [number, number][] = [];
  let [x, y] = [width, height];
  for (let changes = traces.length - 1; changes >= 0; changes--) {
    const trace = traces[changes]!;
    const at = (lane: number): number => trace[lane + changes + 1]!;
    const lane = x - y;
    const down = lane === -changes || (lane !== changes && at(lane - 1) < at(lane + 1));
    const before = down ? lane + 1 : lane - 1;
    const [startX, startY] = [at(before), at(before) - before];
    while (x > startX && y > startY) pairs.push([--x, --y]);
    [x, y] = [startX, startY];
  }
  return pairs.reverse();
}

/** Each of the left with the next of the right that has the same key, never going back. */
function inOrder(left: string[], right: string[]): [number, number][] {
  const pairs: [number, number][] = [];
  let from = 0;
  left.forEach((key, at) => {
    const found = right.indexOf(key, from);
    if (found >= 0 && found - from <= 200) {
      pairs.push([at, found]);
      from = found + 1;
    }
  });
  return pairs;
}

const paired = (left: string[], right: string[]): [number, number][] => common(left, right) ?? inOrder(left, right);

/** All calls of both, in order, each beside the one that it is. */
export function align<Call>(left: Call[], right: Call[], same: Key<Call>, alike: Key<Call>): Aligned<Call>[] {
  const found: Aligned<Call>[] = [];
  let [x, y] = [0, 0];
  const between = (toX: number, toY: number): void => {
    const lefts = left.slice(x, toX);
    const rights = right.slice(y, toY);
    let [i, j] = [0, 0];
    const rest = (untilI: number, untilJ: number): void => {
      while (i < untilI) found.push({ left: lefts[i++]!, right: null });
      while (j < untilJ) found.push({ left: null, right: rights[j++]! });
    };
    for (const [atI, atJ] of paired(lefts.map(alike), rights.map(alike))) {
      rest(atI, atJ);
      found.push({ left: lefts[i++]!, right: rights[j++]! });
    }
    rest(lefts.length, rights.length);
  };
  for (const [atX, atY] of paired(left.map(same), right.map(same))) {
    between(atX, atY);
    found.push({ left: left[atX]!, right: right[atY]! });
    [x, y] = [atX + 1, atY + 1];
  }
  between(left.length, right.length);
  return found;
}
