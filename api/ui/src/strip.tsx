// What is local, tiered and lost, by offset, from years down to one segment.
import type { PartitionRow, Strip } from "./answers";
import { age, number, time } from "./format";

const WIDTH = 1000;
const ROWS = { tiered: 8, local: 44, lost: 80 };
const HEIGHT = 24;

export interface Range {
  first: number;
  last: number;
}

// The range half as long, twice as long, or moved by half of itself, within `all`.
export function moved(range: Range, all: Range, how: "in" | "out" | "left" | "right"): Range {
  const length = range.last - range.first + 1;
  const middle = range.first + Math.floor(length / 2);
  const size = Math.max(1, how === "in" ? Math.ceil(length / 2) : how === "out" ? length * 2 : length);
  const first = how === "left" ? range.first - Math.ceil(length / 2) : how === "right" ? range.first + Math.ceil(length / 2) : middle - Math.floor(size / 2);
  const begin = Math.max(all.first, Math.min(first, all.last - size + 1));
  return { first: begin, last: Math.min(all.last, begin + size - 1) };
}

export function StripPicture({ strip, row, range, all, choose, open }: {
  strip: Strip;
  row: PartitionRow | null;
  range: Range;
  all: Range;
  choose: (range: Range) => void;
  open: (segment: string) => void;
}) {
  const length = range.last - range.first + 1;
  const at = (offset: number) => ((Math.max(range.first, Math.min(offset, range.last + 1)) - range.first) / length) * WIDTH;
  const bar = (first: number, last: number) => ({ x: at(first), width: Math.max(1.5, at(last + 1) - at(first) - 0.5), height: HEIGHT });
  const local = row?.local_log_start_offset ?? null;
  const end = row?.high_watermark ?? row?.next_offset ?? null;
  const shown = strip.pieces;
  const times = shown.map((piece) => piece.max_timestamp_ms);
  const [oldest, newest] = [Math.min(...times), Math.max(...times)];
  const span = shown.length > 0 ? `${time(oldest)} to ${time(newest)} (${age(newest - oldest)})` : "no tiered record here";
  const buttons: [string, "in" | "out" | "left" | "right"][] = [["Zoom in", "in"], ["Zoom out", "out"], ["Earlier", "left"], ["Later", "right"]];
  return (
    <figure className="strip">
      <div role="group" aria-label="Zoom" className="pager">
        {buttons.map(([name, how]) => (
          <button key={how} type="button" className="small" onClick={() => choose(moved(range, all, how))}>{name}</button>
        ))}
        <button type="button" className="small" onClick={() => choose(all)}>All</button>
      </div>
      <svg viewBox={`0 0 ${WIDTH} 112`} preserveAspectRatio="none" role="img" aria-label={`Offsets ${number(range.first)} to ${number(range.last)}: ${shown.length} tiered pieces, ${strip.lost_ranges.length} lost ranges; the table below says the same`}>
        <defs>
          <pattern id="lost" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" className="lost" /></pattern>
          <pattern id="local" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="2.5" className="local" /></pattern>
        </defs>
        {shown.map((piece) => (
          <rect key={`${piece.segment_id}-${piece.start_offset}`} {...bar(piece.start_offset, piece.end_offset)} y={ROWS.tiered} className="tiered" onClick={() => open(piece.segment_id)}>
            <title>{`${number(piece.start_offset)} to ${number(piece.end_offset)}, ${time(piece.max_timestamp_ms)}`}</title>
          </rect>
        ))}
        {local !== null && end !== null && end > local && <rect {...bar(local, end - 1)} y={ROWS.local} fill="url(#local)" className="framed" />}
        {strip.lost_ranges.map((each) => (
          <rect key={each.start_offset} {...bar(each.start_offset, each.end_offset)} y={ROWS.lost} fill="url(#lost)" className="framed" />
        ))}
      </svg>
      <figcaption>
        Rows: tiered (full), local (lines across), lost (slanted). Offsets {number(range.first)} to {number(range.last)}; {span}.
        {strip.whole ? ` All segments here are drawn: ${shown.length}.` : ` ${shown.length} of the segments here are drawn, evenly spread: zoom in for each.`}
      </figcaption>
    </figure>
  );
}

