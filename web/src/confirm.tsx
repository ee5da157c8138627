// Something is done: asked once more, in words that say what follows.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { sentence } from "./ask";
import { Trouble } from "./parts";
import { inFile } from "./record";

type Props = {
  label: string;
  title: string;
  children: preact.ComponentChildren;
  /** What is typed with it; null: nothing is. */
  reason?: string;
  act: (reason: string) => Promise<string>;
};

export function Confirmed({ label, title, children, reason, act }: Props) {
  const [open, setOpen] = useState(false);
  const [said, setSaid] = useState("");
  if (inFile) return null;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>{label}</button>
      <span role="status" class="quiet">{said}</span>
      {open && (
        <Question
          label={label}
          title={title}
          {...(reason === undefined ? {} : { reason })}
          act={async (words) => {
            setSaid(await act(words));
            setOpen(false);
          }}
          leave={() => setOpen(false)}
        >
          {children}
        </Question>
      )}
    </>
  );
}

function Question(props: Omit<Props, "act"> & { act: (reason: string) => Promise<void>; leave: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [words, setWords] = useState("");
  const [trouble, setTrouble] = useState("");
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => dialog.current!.showModal(), []);
  const done = (event: Event) => {
    event.preventDefault();
    setBusy(true);
    props.act(words).catch((error) => {
      setTrouble(sentence(error));
      setBusy(false);
    });
  };
  return (
    <dialog ref={dialog} aria-labelledby="question" onClose={props.leave} onKeyDown={(event) => event.key === "Escape" && props.leave()}>
      <form class="question" onSubmit={done}>
        <h2 id="question">{props.title}</h2>
        <div>{props.children}</div>
        {props.reason !== undefined && (
          <label>
            {props.reason} <input type="text" maxLength={500} value={words} onInput={(event) => setWords(event.currentTarget.value)} />
          </label>
        )}
        {trouble && <Trouble text={trouble} />}
        <div class="bar">
          <button class="strong" type="submit" disabled={busy}>{busy ? "…" : props.label}</button>
          <button type="button" onClick={props.leave}>Leave it</button>
        </div>
      </form>
    </dialog>
  );
}
