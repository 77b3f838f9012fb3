// What was deleted or changed, by whom and why, of all nodes by time.
import { useState } from "react";
import type { AuditLine, WholeAudit } from "./answers";
import { path } from "./ask";
import { bytes, time } from "./format";
import { useAnswer } from "./live";
import { Pager, usePages } from "./pages";
import { Loaded, Silent, Table } from "./parts";

const COLUMNS = [
  { name: "When", cell: (line: AuditLine) => time(line.at_ms) },
  { name: "Node", cell: (line: AuditLine) => line.node },
  { name: "Action", cell: (line: AuditLine) => line.action },
  { name: "Of", cell: (line: AuditLine) => (line.topic === null ? "the node or cluster" : `${line.topic}-${line.partition}`) },
  { name: "By", cell: (line: AuditLine) => line.by },
  { name: "Why", cell: (line: AuditLine) => line.why },
  { name: "Size", cell: (line: AuditLine) => bytes(line.size_bytes), numeric: true },
];

export function Audit() {
  const [typed, setTyped] = useState("");
  const [topic, setTopic] = useState("");
  const pages = usePages(topic);
  const answer = useAnswer<WholeAudit>(path("/v1/cluster/audit", { limit: 50, topic, cursor: pages.cursor }), pages.cursor === null);
  return (
    <>
      <h1>Audit</h1>
      <form className="filters" onSubmit={(event) => (event.preventDefault(), setTopic(typed.trim()))}>
        <label>
          Topic, whole name
          <input value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <button type="submit">Filter</button>
      </form>
      <Loaded answer={answer}>
        {(data) => (
          <>
            <Silent nodes={data.nodes} />
            <Table caption="Newest first, times by each node's clock" columns={COLUMNS} rows={data.lines} rowKey={(line, index) => `${line.node}-${line.at_ms}-${index}`} empty="Nothing was deleted or changed." />
            <Pager pages={pages} next={data.next_cursor} name="the audit" />
          </>
        )}
      </Loaded>
    </>
  );
}
