// Small parts of every surface.
import { useState } from "preact/hooks";
import { clock, millis, plain } from "./text";

/** A moment of the record: local, with UTC beside it. */
export const Moment = ({ at }: { at: string }) => (
  <time title={`${at} (UTC)`} dateTime={at}>
    {clock(at)}
    <span class="millis">{millis(at)}</span>
  </time>
);

export const Trouble = ({ text }: { text: string }) => (
  <p class="trouble" role="alert">{plain(text)}</p>
);

export function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      title={plain(text.slice(0, 300))}
      onClick={() =>
        void navigator.clipboard.writeText(text).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1500);
        })
      }
    >
      <span aria-live="polite">{done ? "Copied" : label}</span>
    </button>
  );
}

export const Fact = ({ name, children }: { name: string; children: preact.ComponentChildren }) => (
  <div class="fact">
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);
