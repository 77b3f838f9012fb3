// One partition: where its bytes are, why it waits, and what retention would do.
import { useState } from "react";
import type { PartitionName, PartitionRow, RetentionPlan, Strip, StripPiece, WholePartitions } from "./answers";
import { partitionPath, path } from "./ask";
import { age, bytes, number, plural, time } from "./format";
import { useAnswer } from "./live";
import { PartitionActions } from "./partition_actions";
import { StateOf } from "./partitions";
import { Facts, Loaded, partitionLink, Silent, Status, Table } from "./parts";
import { StripPicture, type Range } from "./strip";

const PIECES = 200;
const TABLE_PIECES = 50;

function allOf(strip: Strip, row: PartitionRow | null): Range {
  const ends = [strip.last_offset, (row?.high_watermark ?? 0) - 1, (row?.next_offset ?? 0) - 1];
  const starts = [strip.first_offset, ...(row?.local_log_start_offset != null ? [row.local_log_start_offset] : [])];
  return { first: Math.min(...starts), last: Math.max(...ends) };
}

function StripOf({ name, row }: { name: PartitionName; row: PartitionRow | null }) {
  const [range, setRange] = useState<Range | null>(null);
  const address = partitionPath(name.topic, name.partition, "/strip");
  const whole = useAnswer<Strip>(path(address, { topic_id: name.topic_id, points: PIECES }));
  const zoomed = useAnswer<Strip>(range && path(address, { topic_id: name.topic_id, points: PIECES, first_offset: range.first, last_offset: range.last }));
  const open = (segment: string) => (location.hash = `#/segments/${encodeURIComponent(name.topic)}/${name.partition}/${segment}?topic_id=${name.topic_id}`);
  return (
    <Loaded answer={whole}>
      {(first) => {
        const all = allOf(first, row);
        const strip = range === null ? first : zoomed.data ?? { ...first, pieces: [] };
        const columns = [
          { name: "Offsets", cell: (piece: StripPiece) => <a href={`#/segments/${encodeURIComponent(name.topic)}/${name.partition}/${piece.segment_id}?topic_id=${name.topic_id}`}>{number(piece.start_offset)} to {number(piece.end_offset)}</a> },
          { name: "Newest record", cell: (piece: StripPiece) => time(piece.max_timestamp_ms) },
          { name: "Size", cell: (piece: StripPiece) => bytes(piece.size_bytes), numeric: true },
          { name: "Segment", cell: (piece: StripPiece) => <code>{piece.segment_id}</code> },
        ];
        const step = Math.max(1, Math.ceil(strip.pieces.length / TABLE_PIECES));
        const listed = strip.pieces.filter((_, index) => index % step === 0);
        return (
          <>
            <StripPicture strip={strip} row={row} range={range ?? all} all={all} choose={setRange} open={open} />
            <Table caption={step === 1 && strip.whole ? "Segments that serve these offsets" : `${listed.length} of the segments that serve these offsets; zoom in for the rest`} columns={columns} rows={listed} rowKey={(piece) => `${piece.segment_id}-${piece.start_offset}`} empty="Nothing is tiered here." />
            {strip.lost_ranges.length > 0 && (
              <Table
                caption="Lost offsets"
                columns={[
                  { name: "Offsets", cell: (each) => <Status tone="bad">{number(each.start_offset)} to {number(each.end_offset)}</Status> },
                  { name: "Why", cell: (each) => each.why },
                ]}
                rows={strip.lost_ranges}
                rowKey={(each) => `${each.start_offset}`}
                empty=""
              />
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function Plan({ name }: { name: PartitionName }) {
  const plan = useAnswer<RetentionPlan>(path(partitionPath(name.topic, name.partition, "/retention/plan"), { topic_id: name.topic_id }));
  return (
    <Loaded answer={plan}>
      {(data) => (
        <>
          <p><Status tone={data.held_back || data.brake ? "warn" : data.segment_count > 0 ? "warn" : "good"}>{data.summary}</Status></p>
          <Facts
            facts={[
              ["Retention", `${data.retention_ms === null ? "no limit of time" : age(data.retention_ms)}, ${data.retention_bytes === null ? "no limit of size" : bytes(data.retention_bytes)}, of ${data.retention_of}`],
              ["Would go", `${number(data.segment_count)} segments, ${bytes(data.expiring_bytes)} of ${bytes(data.tiered_bytes)}`],
              ["New log start", number(data.new_log_start_offset)],
              ["Readers start at", number(data.new_readable_offset)],
              ["Into the trash", `${number(data.trashed_count)} segments`],
              ["Next is due", time(data.next_due_ms)],
              ["Held back", data.held_back ?? "no"],
              ["Brake", data.brake ?? "no"],
              ["Hold", data.hold ?? "no"],
            ]}
          />
          {data.segments.length > 0 && (
            <Table
              caption="The next to go, the first twenty"
              columns={[
                { name: "Offsets", cell: (each) => `${number(each.start_offset)} to ${number(each.end_offset)}` },
                { name: "Newest record", cell: (each) => time(each.max_timestamp_ms) },
                { name: "Size", cell: (each) => bytes(each.size_bytes), numeric: true },
                { name: "Why", cell: (each) => each.why },
              ]}
              rows={data.segments.slice(0, 20)}
              rowKey={(each) => each.segment_id}
              empty=""
            />
          )}
        </>
      )}
    </Loaded>
  );
}

export function Partition({ topic, partition, topicId }: { topic: string; partition: number; topicId: string | null }) {
  const answer = useAnswer<WholePartitions>(path("/v1/cluster/partitions", { topic, partition, limit: 10 }));
  const row = answer.data?.partitions.find((each) => topicId === null || each.topic_id === topicId) ?? null;
  return (
    <>
      <p><a href="#/partitions">Partitions</a></p>
      <h1>{topic}-{partition}</h1>
      <Loaded answer={answer}>
        {(data) => (
          <>
            <Silent nodes={data.nodes} />
            {row === null ? (
              <Status tone="warn">No node that answered knows this partition.</Status>
            ) : (
              <>
                <p><StateOf of={row} /></p>
                {data.partitions.length > 1 && <p>The topic was made anew: {data.partitions.map((each) => <a key={each.topic_id} href={partitionLink(each)}>{each.topic_id} </a>)}</p>}
                <Facts
                  facts={[
                    ["Told by", `node ${row.node}, ${row.role}`],
                    ["Mode", row.mode],
                    ["Claimed by", row.claimed_by_node === null ? "nobody" : `node ${row.claimed_by_node}`],
                    ["Leader epoch", number(row.leader_epoch)],
                    ["Log start", number(row.log_start_offset)],
                    ["Local log start", number(row.local_log_start_offset)],
                    ["Copying goes on at", number(row.next_offset)],
                    ["High watermark", number(row.high_watermark)],
                    ["Uncopied", row.lag ? `${bytes(row.lag.size_bytes)} in ${plural(row.lag.segments, "segment")}, the oldest ${age(row.lag.age_ms)}` : "not reported"],
                    ["Local", bytes(row.local_bytes)],
                    ["Tiered", `${bytes(row.remote_bytes)} in ${plural(row.remote_segments, "segment")}`],
                    ["Lost", number(row.lost_offsets)],
                  ]}
                />
                <h2>Where its offsets are</h2>
                <StripOf name={row} row={row} />
                <h2>Retention, before it happens</h2>
                <Plan name={row} />
                <h2>Actions</h2>
                <PartitionActions of={row} />
              </>
            )}
          </>
        )}
      </Loaded>
    </>
  );
}
