// A line over the last minutes, drawn by uPlot; the numbers stand beside it, too.
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const SPAN_MIN_S = 60;

export interface Point {
  at_s: number;
  value: number;
}

export function Line({ points, name }: { points: Point[]; name: string }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const node = place.current!;
    const colour = getComputedStyle(node).color;
    const axis = { stroke: colour, grid: { stroke: colour, width: 0.2 } };
    plot.current = new uPlot(
      { width: node.clientWidth, height: 200, legend: { show: false }, cursor: { show: false }, axes: [axis, { ...axis, size: 70 }], scales: { x: { range: (_, least, most) => [Math.min(least, most - SPAN_MIN_S), most] } }, series: [{}, { label: name, stroke: colour, width: 2 }] },
      [[], []],
      node,
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: node.clientWidth, height: 200 }));
    resized.observe(node);
    return () => (resized.disconnect(), plot.current?.destroy());
  }, [name]);
  useEffect(() => plot.current?.setData([points.map((each) => each.at_s), points.map((each) => each.value)]), [points]);
  return <div ref={place} role="img" aria-label={`${name}, over the time that this view is open`} className="chart" />;
}
