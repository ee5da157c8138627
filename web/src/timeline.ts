// A run drawn on a canvas: a lane for each server, a bar for each call, as long as it took. A plain class: what is
// zoomed to is its own, whatever is drawn around it.

export type Bar = { key: string; lane: string; from: number; to: number; tone: string };
export type Mark = { at: number; tone: string };

const LANE_PX = 26;
const AXIS_PX = 20;
const LEFT_PX = 120;
const SHORTEST_MS = 5;

export class Timeline {
  private bars: Bar[] = [];
  private marks: Mark[] = [];
  private lanes: string[] = [];
  private whole = { from: 0, to: 1 };
  private view = { from: 0, to: 1 };
  private active: string | null = null;
  private longest = 0;

  constructor(private readonly canvas: HTMLCanvasElement, private readonly choose: (key: string) => void) {
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.shiftKey) this.pan((event.deltaY || event.deltaX) > 0 ? 0.1 : -0.1);
      else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("click", (event) => {
      const bar = this.barAt(event.offsetX, event.offsetY);
      if (bar) this.choose(bar.key);
    });
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement!);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Bars in order of their beginning. What was zoomed to stays. */
  show(bars: Bar[], marks: Mark[]): void {
    const zoomed = this.view.from !== this.whole.from || this.view.to !== this.whole.to;
    this.bars = bars;
    this.marks = marks;
    this.lanes = [...new Set(bars.map((bar) => bar.lane))];
    this.longest = bars.reduce((most, bar) => Math.max(most, bar.to - bar.from), 0);
    const times = [...bars.flatMap((bar) => [bar.from, bar.to]), ...marks.map((mark) => mark.at)];
    const from = times.reduce((least, at) => Math.min(least, at), Infinity);
    const to = times.reduce((most, at) => Math.max(most, at), -Infinity);
    this.whole = Number.isFinite(from) ? { from, to: Math.max(to, from + SHORTEST_MS) } : { from: 0, to: 1 };
    if (!zoomed) this.view = { ...this.whole };
    this.draw();
  }

  select(key: string | null): void {
    this.active = key;
    const bar = this.bars.find((one) => one.key === key);
    if (bar && (bar.to < this.view.from || bar.from > this.view.to)) {
      const half = (this.view.to - this.view.from) / 2;
      this.view = { from: bar.from - half, to: bar.from + half };
    }
    this.draw();
  }

  zoom(factor: number, around = (this.view.from + this.view.to) / 2): void {
    const { from, to } = this.view;
    const length = Math.min(this.whole.to - this.whole.from, Math.max(SHORTEST_MS, (to - from) * factor));
    const start = around - ((around - from) / (to - from)) * length;
    this.look(start, length);
  }

  pan(share: number): void {
    const length = this.view.to - this.view.from;
    this.look(this.view.from + share * length, length);
  }

  reset(): void {
    this.view = { ...this.whole };
    this.draw();
  }

  private look(start: number, length: number): void {
    const from = Math.max(this.whole.from, Math.min(start, this.whole.to - length));
    this.view = { from, to: from + length };
    this.draw();
  }

  private x(at: number): number {
    return LEFT_PX + ((at - this.view.from) / (this.view.to - this.view.from)) * (this.canvas.clientWidth - LEFT_PX - 8);
  }

  private timeAt(x: number): number {
    return this.view.from + ((x - LEFT_PX) / (this.canvas.clientWidth - LEFT_PX - 8)) * (this.view.to - this.view.from);
  }

  private barAt(x: number, y: number): Bar | null {
    const lane = this.lanes[Math.floor((y - AXIS_PX) / LANE_PX)];
    const near = (bar: Bar) => (x < this.x(bar.from) ? this.x(bar.from) - x : Math.max(0, x - this.x(bar.to)));
    const found = this.bars.filter((bar) => bar.lane === lane && near(bar) <= 4).sort((one, other) => near(one) - near(other));
    return found[0] ?? null;
  }

  /** The first bar that can be seen: none begins longer before the view than the longest lasts. */
  private first(): number {
    let low = 0;
    let high = this.bars.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.bars[middle]!.from < this.view.from - this.longest) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw(): void {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const width = canvas.parentElement!.clientWidth;
    const height = AXIS_PX + Math.max(1, this.lanes.length) * LANE_PX + 4;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d")!;
    pen.scale(ratio, ratio);
    const style = getComputedStyle(canvas);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim() || style.color;
    pen.font = "12px system-ui, sans-serif";
    this.drawAxis(pen, colour("quiet"), height, width);
    this.lanes.forEach((lane, at) => {
      const y = AXIS_PX + at * LANE_PX;
      pen.fillStyle = colour("quiet");
      pen.fillText(fitted(pen, lane, LEFT_PX - 12), 4, y + 17);
      pen.fillStyle = colour("line");
      pen.fillRect(LEFT_PX, y + LANE_PX - 1, width - LEFT_PX, 1);
    });
    const rows = new Map(this.lanes.map((lane, at) => [lane, AXIS_PX + at * LANE_PX + 5]));
    const drawn = new Map<string, number>(); // bars that fall on one pixel are drawn once
    for (let at = this.first(); at < this.bars.length; at++) {
      const bar = this.bars[at]!;
      if (bar.from > this.view.to) break;
      const x = this.x(bar.from);
      const end = Math.max(x + 2, this.x(bar.to));
      if (end < LEFT_PX || (end <= (drawn.get(bar.lane + bar.tone) ?? 0) && bar.key !== this.active)) continue;
      drawn.set(bar.lane + bar.tone, end);
      pen.fillStyle = colour(`tone-${bar.tone}`);
      const left = Math.max(LEFT_PX, x);
      pen.fillRect(left, rows.get(bar.lane)!, Math.max(2, end - left), LANE_PX - 10);
      if (bar.key === this.active) {
        pen.strokeStyle = colour("focus");
        pen.lineWidth = 2;
        pen.strokeRect(left - 2, rows.get(bar.lane)! - 2, Math.max(2, end - left) + 4, LANE_PX - 6);
      }
    }
    for (const mark of this.marks) {
      if (mark.at < this.view.from || mark.at > this.view.to) continue;
      pen.fillStyle = colour(`tone-${mark.tone}`);
      pen.fillRect(this.x(mark.at), AXIS_PX, 1.5, height - AXIS_PX);
    }
  }

  private drawAxis(pen: CanvasRenderingContext2D, ink: string, height: number, width: number): void {
    const length = this.view.to - this.view.from;
    const rough = length / Math.max(2, Math.floor((width - LEFT_PX) / 110));
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough)!;
    pen.fillStyle = ink;
    for (let at = Math.ceil((this.view.from - this.whole.from) / step) * step; at <= this.view.to - this.whole.from; at += step) {
      const x = this.x(this.whole.from + at);
      pen.fillText(at < 1000 && step < 1000 ? `${+at.toFixed(3)} ms` : `${+(at / 1000).toFixed(3)} s`, x + 3, 13);
      pen.globalAlpha = 0.35;
      pen.fillRect(x, 4, 1, height - 4);
      pen.globalAlpha = 1;
    }
  }
}

function fitted(pen: CanvasRenderingContext2D, text: string, room: number): string {
  if (pen.measureText(text).width <= room) return text;
  let cut = text;
  while (cut && pen.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
  return `${cut}…`;
}
