// A list of any length: only the rows that can be seen are in the document. One row is the active one; keys move it.
import { Component, type ComponentChildren, options, type RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

const ROW_PX = 34;
const BEYOND = 8;

export type Column<Row> = { name: string; class?: string; cell: (row: Row) => ComponentChildren };

type Props<Row> = {
  label: string;
  rows: Row[];
  /** Changes where rows have changed in place. */
  version: number;
  columns: Column<Row>[];
  layout: string;
  keyOf: (row: Row) => string;
  tone?: (row: Row) => string;
  active: string | null;
  onActive: (row: Row) => void;
  onOpen: (row: Row) => void;
  /** A key of this list alone, on its active row; whether it was one. */
  onKey?: (key: string, row: Row) => boolean;
  onEnd?: () => void;
  /** Whether somebody looks at it as it is: scrolled away from the top, or pointing at it. */
  onHold?: (held: boolean) => void;
  more?: boolean;
};

export function List<Row>(props: Props<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const pointed = useRef(false);
  const { rows, columns, keyOf, onHold, onEnd } = props;
  const held = () => onHold?.(pointed.current || (box.current?.scrollTop ?? 0) > ROW_PX / 2);

  useLayoutEffect(() => {
    const watcher = new ResizeObserver(() => setView((old) => ({ ...old, height: box.current!.clientHeight })));
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);

  const [printed, setPrinted] = useState(false);
  useEffect(() => {
    // On paper there is no scrolling: all of it is in the document. Drawn before the browser takes its picture.
    const print = () => atOnce(() => setPrinted(true));
    const done = () => setPrinted(false);
    addEventListener("beforeprint", print);
    addEventListener("afterprint", done);
    return () => {
      removeEventListener("beforeprint", print);
      removeEventListener("afterprint", done);
    };
  }, []);

  const first = printed ? 0 : Math.max(0, Math.floor(view.top / ROW_PX) - BEYOND);
  const last = printed ? rows.length : Math.min(rows.length, Math.ceil((view.top + view.height) / ROW_PX) + BEYOND);
  useEffect(() => {
    if (last >= rows.length - BEYOND && props.more) onEnd?.();
  }, [last, rows.length, props.more]);

  const index = useMemo(
    () => (props.active === null ? -1 : rows.findIndex((row) => keyOf(row) === props.active)),
    [rows, rows.length, props.version, props.active],
  );
  const latest = useRef(props);
  latest.current = props;
  const open = useCallback((row: Row) => {
    latest.current.onActive(row);
    latest.current.onOpen(row);
  }, []);
  const move = (to: number) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))];
    if (!row) return;
    props.onActive(row);
    show(box, rows.indexOf(row));
  };
  useEffect(() => {
    // Whoever moves by keys is read what is there: the row itself has the focus.
    if (index >= 0 && box.current!.contains(document.activeElement) && !document.activeElement!.matches("input")) {
      document.getElementById(`row-${keyOf(rows[index]!)}`)?.focus({ preventScroll: true });
    }
  }, [props.active]);
  const onKey = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / ROW_PX) - 1);
    const steps: Record<string, number> = {
      ArrowDown: index + 1, j: index + 1, ArrowUp: index < 0 ? 0 : index - 1, k: index < 0 ? 0 : index - 1,
      PageDown: index + page, PageUp: index - page, Home: 0, End: rows.length - 1,
    };
    if (event.ctrlKey || event.metaKey || event.altKey || (event.target as Element).closest("input, a, button")) return;
    if (event.key in steps) move(steps[event.key]!);
    else if (event.key === "Enter" && rows[index]) props.onOpen(rows[index]);
    else if (rows[index] && props.onKey?.(event.key, rows[index])) event.stopPropagation();
    else return;
    event.preventDefault();
  };
  const shown = [];
  for (let at = first; at < last; at++) shown.push(at);
  if (index >= 0 && (index < first || index >= last)) shown.push(index); // the active one stays in the document
  return (
    <div class="list" role="grid" aria-label={props.label} aria-rowcount={props.more ? -1 : rows.length + 1}>
      <div class="head row" role="row" aria-rowindex={1} style={{ gridTemplateColumns: props.layout }}>
        {columns.map((column) => (
          <span role="columnheader" class={column.class ?? ""}>{column.name}</span>
        ))}
      </div>
      <div
        class="body"
        ref={box}
        role="rowgroup"
        tabIndex={0}
        aria-label={props.label}
        onScroll={() => {
          setView({ top: box.current!.scrollTop, height: box.current!.clientHeight });
          held();
        }}
        onKeyDown={onKey}
        onPointerEnter={(event) => {
          pointed.current = event.pointerType === "mouse";
          held();
        }}
        onPointerLeave={() => {
          pointed.current = false;
          held();
        }}
      >
        <div class="tall" role="presentation" style={{ height: `${rows.length * ROW_PX}px` }}>
          {shown.map((at) => {
            const row = rows[at]!;
            const key = keyOf(row);
            return (
              <Line
                key={key}
                id={`row-${key}`}
                row={row as unknown}
                at={at}
                active={at === index}
                version={props.version}
                columns={columns as unknown as Column<unknown>[]}
                layout={props.layout}
                tone={props.tone?.(row) ?? ""}
                open={open as (row: unknown) => void}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

type LineProps = {
  id: string;
  row: unknown;
  at: number;
  active: boolean;
  version: number;
  columns: Column<unknown>[];
  layout: string;
  tone: string;
  open: (row: unknown) => void;
};

/** One row. While a list is scrolled, those that were there are left as they are. */
class Line extends Component<LineProps> {
  override shouldComponentUpdate(next: LineProps): boolean {
    const now = this.props;
    return (
      next.row !== now.row || next.at !== now.at || next.active !== now.active || next.version !== now.version ||
      next.columns !== now.columns || next.tone !== now.tone
    );
  }

  override render({ id, row, at, active, columns, layout, tone, open }: LineProps) {
    return (
      <div
        id={id}
        role="row"
        aria-rowindex={at + 2}
        aria-selected={active}
        tabIndex={-1}
        class={`row ${tone} ${active ? "active" : ""}`}
        style={{ gridTemplateColumns: layout, transform: `translateY(${at * ROW_PX}px)` }}
        onClick={() => open(row)}
      >
        {columns.map((column) => (
          <span role="gridcell" class={column.class ?? ""}>{column.cell(row)}</span>
        ))}
      </div>
    );
  }
}

function show(box: RefObject<HTMLDivElement | null>, index: number): void {
  const view = box.current!;
  const top = index * ROW_PX;
  if (top < view.scrollTop) view.scrollTop = top;
  else if (top + ROW_PX > view.scrollTop + view.clientHeight) view.scrollTop = top + ROW_PX - view.clientHeight;
}

/** What a change draws is drawn when this returns. */
function atOnce(change: () => void): void {
  const before = options.debounceRendering;
  let draw: () => void = () => undefined;
  options.debounceRendering = (render) => (draw = render);
  change();
  if (before) options.debounceRendering = before;
  else delete options.debounceRendering;
  draw();
}
