// What was hidden from readers and not deleted yet, and how to have it back.
import type { PartitionName } from "./answers";
import { path } from "./ask";
import { age, bytes, number, plural, time } from "./format";
import { useAnswer } from "./live";
import { Pager, usePages } from "./pages";
import { Loaded, PartitionLink, Status, Table } from "./parts";

export interface Trashed extends PartitionName {
  state: "deleted" | "expired" | "held";
  log_start_offset: number | null;
  readable_from_offset: number | null;
  segments: number;
  size_bytes: number;
  goes_from_ms: number | null;
  marks: { before_offset: number; why: string }[];
  hold: { who: string; why: string } | null;
}

export interface Trash {
  partitions: Trashed[];
  delegated_partitions: number;
  trash_s: number;
  next_cursor: string | null;
}

const STATES = { deleted: "the topic is to be deleted", expired: "taken by retention", held: "held: retention waits" };

const COLUMNS = [
  { name: "Partition", cell: (row: Trashed) => <PartitionLink of={row} /> },
  { name: "State", cell: (row: Trashed) => <Status tone={row.state === "held" ? "idle" : "warn"}>{STATES[row.state]}{row.hold ? `, by ${row.hold.who}: ${row.hold.why}` : ""}</Status> },
  { name: "In the trash", cell: (row: Trashed) => `${bytes(row.size_bytes)} in ${plural(row.segments, "segment")}`, numeric: true },
  { name: "Readers start at", cell: (row: Trashed) => number(row.readable_from_offset), numeric: true },
  { name: "Goes from about", cell: (row: Trashed) => time(row.goes_from_ms) },
  { name: "Why", cell: (row: Trashed) => row.marks.at(-1)?.why ?? "" },
];

export function TrashView() {
  const pages = usePages("trash");
  const answer = useAnswer<Trash>(path("/v1/trash", { limit: 50, cursor: pages.cursor }), false); // the node looks at every partition for it
  return (
    <>
      <h1>Trash</h1>
      <Loaded answer={answer}>
        {(data) => (
          <>
            <p>
              What retention takes stays {age(data.trash_s * 1000)} before it is deleted. A partition's page has the actions.
              {data.delegated_partitions > 0 && ` ${plural(data.delegated_partitions, "partition")} that brokers tier themselves have no trash but for whole topics.`}
            </p>
            <Table caption="Partitions with something in the trash, or held" columns={COLUMNS} rows={data.partitions} rowKey={(row) => `${row.topic_id}-${row.partition}`} empty="The trash is empty." />
            <Pager pages={pages} next={data.next_cursor} name="the trash" />
          </>
        )}
      </Loaded>
    </>
  );
}
