// What is looked at stands in the address, all of it: a link shows the same thing, and Back goes back.
import { signal } from "@preact/signals";
import { options } from "preact";
import { CALL_FILTERS, type Filter } from "./api.gen";
import { inFile } from "./record";

export type Place = { path: string; words: URLSearchParams };

/** In a file, the address within the page stands behind its `#`. */
const written = (): string => (inFile ? location.hash.slice(1) || "/run" : location.pathname + location.search);

function here(): Place {
  const [path = "/", words = ""] = written().split(/\?(.*)/s);
  return { path, words: new URLSearchParams(words) };
}

export const place = signal<Place>(here());
addEventListener("popstate", () => (place.value = here()));

if (inFile) {
  const before = options.vnode;
  options.vnode = (node) => {
    const props = node.props as { href?: unknown };
    if (node.type === "a" && typeof props.href === "string" && props.href.startsWith("/")) props.href = `#${props.href}`;
    before?.(node);
  };
}

export function address(path: string, words: URLSearchParams | Record<string, string>): string {
  const text = new URLSearchParams(words).toString();
  return text ? `${path}?${text}` : path;
}

/** Go there; `replace` where Back should not lead to where we were (a slider that moves, a letter that was typed). */
export function go(to: string, replace = false): void {
  if (to === written()) return;
  history[replace ? "replaceState" : "pushState"](null, "", inFile ? `#${to}` : to);
  place.value = here();
}

/** A click on a link of ours, unless the user wants it elsewhere. */
export function follow(event: MouseEvent): void {
  const link = (event.target as Element).closest?.("a[href^='/']");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.getAttribute("href")!);
}

export function set(words: URLSearchParams, word: string, values: string[]): URLSearchParams {
  const changed = new URLSearchParams(words);
  changed.delete(word);
  for (const value of values) if (value) changed.append(word, value);
  return changed;
}

const UNITS: Record<string, number> = { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };

/** `15m`, `2h`, `3d` ago, or a time; as `sub query --since` takes it. */
export function moment(text: string, now = Date.now()): number | null {
  const ago = /^(\d{1,9})([smhdw])$/.exec(text.trim());
  if (ago) return now - Number(ago[1]) * UNITS[ago[2]!]!;
  const parsed = Date.parse(text);
  return Number.isNaN(parsed) ? null : parsed;
}

/** The filters of an address in the words of the API. A sentence where one cannot be understood. */
export function asked(words: URLSearchParams, table: Filter[] = CALL_FILTERS): URLSearchParams | string {
  const found = new URLSearchParams();
  for (const filter of table) {
    for (const value of words.getAll(filter.word)) {
      if (filter.name.endsWith("_ms") && filter.word !== "min-latency") {
        const ms = moment(value);
        if (ms === null) return `${filter.word}: ${value} is no time. Write 15m, 2h, 3d, or 2026-01-31T12:00.`;
        found.append(filter.name, String(Math.max(0, Math.round(ms))));
      } else found.append(filter.name, value);
    }
  }
  return found;
}
