// All partitions of the cluster, in pages, with filters that the nodes apply.
import { useState } from "react";
import type { PartitionRow, WholePartitions } from "./answers";
import { path } from "./ask";
import { age, bytes, number } from "./format";
import { useAnswer } from "./live";
import { Pager, usePages } from "./pages";
import { Loaded, PartitionLink, Silent, Status, Table } from "./parts";

const LIMIT = 50;

export function StateOf({ of }: { of: PartitionRow }) {
  if (of.gone_offsets > 0) return <Status tone="bad">{number(of.gone_offsets)} offsets gone uncopied</Status>;
  if (of.blocked !== null) return <Status tone="bad">blocked: {of.blocked}</Status>;
  if (of.lag === null) return <Status tone="idle">{of.role}: {of.why_not_text || "no node reports its lag"}</Status>;
  if (of.lag.segments > 0) return <Status tone="warn">behind: {of.why_not_text || "copying"}</Status>;
  return <Status tone="good">copied</Status>;
}

const COLUMNS = [
  { name: "Partition", cell: (row: PartitionRow) => <PartitionLink of={row} /> },
  { name: "State", cell: (row: PartitionRow) => <StateOf of={row} /> },
  { name: "Node", cell: (row: PartitionRow) => row.node },
  { name: "Mode", cell: (row: PartitionRow) => row.mode },
  { name: "Local", cell: (row: PartitionRow) => bytes(row.local_bytes), numeric: true },
  { name: "Tiered", cell: (row: PartitionRow) => bytes(row.remote_bytes), numeric: true },
  { name: "Segments", cell: (row: PartitionRow) => number(row.remote_segments), numeric: true },
  { name: "Uncopied", cell: (row: PartitionRow) => (row.lag ? `${bytes(row.lag.size_bytes)}, ${age(row.lag.age_ms)}` : "–"), numeric: true },
  { name: "Lost offsets", cell: (row: PartitionRow) => (row.lost_offsets > 0 ? <Status tone="bad">{number(row.lost_offsets)}</Status> : "0"), numeric: true },
];

export function Partitions() {
  const [typed, setTyped] = useState("");
  const [contains, setContains] = useState("");
  const [only, setOnly] = useState("");
  const pages = usePages(`${contains} ${only}`);
  const answer = useAnswer<WholePartitions>(path("/v1/cluster/partitions", { limit: LIMIT, contains, only, cursor: pages.cursor }));
  return (
    <>
      <h1>Partitions</h1>
      <form className="filters" onSubmit={(event) => (event.preventDefault(), setContains(typed.trim()))}>
        <label>
          Part of the topic's name
          <input value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <label>
          Which
          <select value={only} onChange={(event) => setOnly(event.target.value)}>
            <option value="">all</option>
            <option value="behind">behind</option>
            <option value="blocked">blocked</option>
            <option value="lost">with lost offsets</option>
          </select>
        </label>
        <button type="submit">Filter</button>
      </form>
      <Loaded answer={answer}>
        {(data) => (
          <>
            <Silent nodes={data.nodes} />
            <Table caption="Partitions by topic and number" columns={COLUMNS} rows={data.partitions} rowKey={(row) => `${row.topic_id}-${row.partition}`} empty="No partition is like that." />
            <Pager pages={pages} next={data.next_cursor} name="partitions" />
          </>
        )}
      </Loaded>
    </>
  );
}
