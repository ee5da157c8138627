// Text as it is shown: what would be obeyed or hidden is written out, times are local, what is not known is said.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

const written = (character: string): string => `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`;

/** With directions, zero widths and control characters written out. Lines and tabs stay where they are. */
export const plain = (text: string): string => text.replace(HIDDEN, written);

/** The same on one line. */
export const oneLine = (text: string): string => plain(text.replace(/[\t\n]+/g, " "));

export const known = (value: string | null | undefined): string => (value ? oneLine(value) : "unknown");

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
}

const two = (number: number, digits = 2): string => String(number).padStart(digits, "0");

/** The local clock, and the date where it is not today's. */
export function clock(ts: string | number | null): string {
  if (ts === null) return "";
  const at = new Date(ts);
  if (Number.isNaN(at.getTime())) return String(ts);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = new Date();
  const same = at.toDateString() === today.toDateString();
  return same ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** The milliseconds of a moment, which a narrow page does without. */
export const millis = (ts: string): string => {
  const at = new Date(ts);
  return Number.isNaN(at.getTime()) ? "" : `.${two(at.getMilliseconds(), 3)}`;
};

export const count = (number: number, one: string): string => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;

/** JSON laid out; anything else as it is. */
export function laidOut(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** For a POSIX shell. */
export const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
