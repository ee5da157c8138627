// One question whose answer is drawn: asked anew where it changes, and never answered by an older one.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, sentence } from "./ask";
import { returned } from "./stream";

export type Asked<Answer> = { answer: Answer | null; trouble: string };

export function useAnswer<Answer>(path: string | null, again: unknown = null): Asked<Answer> {
  const [found, setFound] = useState<Asked<Answer> & { path: string | null }>({ answer: null, trouble: "", path });
  const back = useRef(returned.value);
  if (found.trouble) back.current = returned.value;
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    ask<Answer>(path, stop.signal).then(
      (answer) => setFound({ answer, trouble: "", path }),
      (error) => stop.signal.aborted || setFound({ answer: null, trouble: sentence(error), path }),
    );
    return () => stop.abort();
  }, [path, again, back.current]);
  return found.path === path ? found : { answer: null, trouble: "" };
}
