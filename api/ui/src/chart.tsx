// A line over the last minutes, drawn by uPlot; the numbers stand beside it, too.
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const SPAN_MIN_S = 60;

export interface Point {
  at_s: number;
  value: number;
}

const clock = (_: uPlot, ticks: number[]) => ticks.map((at_s) => new Date(at_s * 1000).toISOString().slice(11, 19)); // UTC, as all times here
const BINARY_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);

// `told`: for bytes, which begin at 0 and have steps of powers of two.
export default function Line({ points, name, told }: { points: Point[]; name: string; told?: (value: number) => string }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const node = place.current!;
    const colour = getComputedStyle(node).color;
    const axis = { stroke: colour, grid: { stroke: colour, width: 0.2 } };
    const sizes = told && { incrs: BINARY_STEPS, values: (_: uPlot, ticks: number[]) => ticks.map(told) };
    plot.current = new uPlot(
      {
        width: node.clientWidth,
        height: 200,
        legend: { show: false },
        cursor: { show: false },
        axes: [{ ...axis, space: 90, values: clock }, { ...axis, size: 80, ...sizes }],
        scales: {
          x: { range: (_, least, most) => [Math.min(least, most - SPAN_MIN_S), most] },
          ...(told && { y: { range: (_: uPlot, __: number, most: number) => [0, Math.max(most * 1.1, 1024)] as [number, number] } }),
        },
        series: [{}, { label: name, stroke: colour, width: 2, points: { show: false } }],
      },
      [[], []],
      node,
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: node.clientWidth, height: 200 }));
    resized.observe(node);
    return () => (resized.disconnect(), plot.current?.destroy());
  }, [name, told]);
  useEffect(() => {
    // One point alone would make an axis of years.
    const shown = points.length > 1 ? points : points.flatMap((each) => [{ ...each, at_s: each.at_s - 1 }, each]);
    plot.current?.setData([shown.map((each) => each.at_s), shown.map((each) => each.value)]);
  }, [points]);
  return <div ref={place} role="img" aria-label={`${name}, over time`} className="chart" />;
}
