// A plot over time. What is dragged over is looked at more closely; a click is one part of it.
import uPlot from "uplot";

export type Series = { label: string; colour: string; bars?: boolean };

const HEIGHT_PX = 190;

const two = (number: number): string => String(number).padStart(2, "0");

/** A moment on the axis, local, as precisely as they lie apart. */
function tick(ms: number, step: number): string {
  const at = new Date(ms);
  const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  if (step >= 864e5) return day;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (step < 6e4) return `${clock}:${two(at.getSeconds())}${step < 1e3 ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : ""}`;
  return clock === "00:00" ? day : clock;
}

export class Plot {
  private plot: uPlot | null = null;
  private readonly watcher: ResizeObserver;

  constructor(
    private readonly box: HTMLElement,
    private readonly series: Series[],
    private readonly unit: (value: number) => string,
    /** Looked at: from there to there, in milliseconds. */
    private readonly zoom: (from: number, to: number) => void,
  ) {
    this.watcher = new ResizeObserver(() => this.plot?.setSize({ width: Math.max(120, box.clientWidth), height: HEIGHT_PX }));
    this.watcher.observe(box);
  }

  close(): void {
    this.watcher.disconnect();
    this.plot?.destroy();
  }

  /** Times in milliseconds, and for each series its values. */
  show(times: number[], values: (number | null)[][], stepMs: number): void {
    const style = getComputedStyle(this.box);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim() || style.color;
    const bars = uPlot.paths.bars!({ size: [0.9, 60], align: 1 });
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
    this.plot?.destroy();
    this.plot = new uPlot(
      {
        width: Math.max(120, this.box.clientWidth),
        height: HEIGHT_PX,
        ms: 1,
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
        scales: { x: { time: true, range: (_plot, from, to) => [from, to + stepMs] }, y: { range: (_plot, _least, most) => [0, Math.max(1, most * 1.08)] } },
        axes: [{ ...axis, size: 28, values: (_plot, ticks, _axis, _space, step) => ticks.map((at) => tick(at, step)) }, { ...axis, size: 60, values: (_plot, ticks) => ticks.map(this.unit) }],
        series: [
          {},
          ...this.series.map((one) => ({
            label: one.label,
            stroke: colour(one.colour),
            spanGaps: false,
            points: { show: !one.bars, size: 5, fill: colour(one.colour) },
            ...(one.bars ? { fill: colour(one.colour), width: 0, paths: bars } : { width: 2 }),
          })),
        ],
        hooks: {
          setSelect: [
            (plot) => {
              if (plot.select.width < 3) return;
              const [from, to] = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
              plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              this.zoom(Math.floor(from), Math.ceil(to));
            },
          ],
        },
      },
      [times, ...values] as uPlot.AlignedData,
      this.box,
    );
    this.plot.over.addEventListener("click", () => {
      const at = this.plot!.cursor.idx;
      if (at !== null && at !== undefined && times[at] !== undefined) this.zoom(times[at]!, times[at]! + stepMs);
    });
  }
}
