// One segment: what is stored, its checksums, its last scrub and its history.
import type { Segment, SegmentHistory } from "./answers";
import { partitionPath, path } from "./ask";
import { bytes, number, time } from "./format";
import { useAnswer } from "./live";
import { Facts, Loaded, Status, Table } from "./parts";

export function SegmentView({ topic, partition, segment, topicId }: { topic: string; partition: number; segment: string; topicId: string | null }) {
  const address = partitionPath(topic, partition, `/segments/${segment}`);
  const found = useAnswer<Segment>(path(address, { topic_id: topicId }));
  const history = useAnswer<SegmentHistory>(path(`${address}/history`, { topic_id: topicId }), false);
  return (
    <>
      <p><a href={`#/partitions/${encodeURIComponent(topic)}/${partition}${topicId ? `?topic_id=${topicId}` : ""}`}>{topic}-{partition}</a></p>
      <h1>Segment {segment}</h1>
      <Loaded answer={found}>
        {(data) => (
          <>
            <p><Status tone={data.damage.length > 0 ? "bad" : data.state === "COPY_SEGMENT_FINISHED" ? "good" : "idle"}>{data.damage.length > 0 ? "damaged" : data.state}</Status></p>
            <Facts
              facts={[
                ["Offsets", `${number(data.start_offset)} to ${number(data.end_offset)}`],
                ["Leader epochs", data.leader_epochs.map((each) => `${each.epoch} from ${number(each.start_offset)}`).join(", ")],
                ["Newest record", time(data.max_timestamp_ms)],
                ["Size", bytes(data.size_bytes)],
                ["Copied from", `broker ${data.broker_id}`],
                ["Aborted transactions", data.txn_index_empty ? "none" : "has an index of them"],
                ["Last scrub", data.last_scrubbed_ms === null ? "none is known" : time(data.last_scrubbed_ms)],
              ]}
            />
            {data.damage.length > 0 && <ul>{data.damage.map((each) => <li key={each.object + each.what}><Status tone="bad">{each.what}</Status> {each.object}: {each.action}</li>)}</ul>}
            <h2>Objects</h2>
            {data.objects === null ? (
              <p>Another program wrote it: its objects are not known here.</p>
            ) : (
              <Table
                caption={`In the store ${data.objects.store}`}
                columns={[
                  { name: "Object", cell: (each) => each.name },
                  { name: "Size", cell: (each) => bytes(each.size), numeric: true },
                  { name: "CRC32C", cell: (each) => <code>{each.crc}</code> },
                ]}
                rows={[
                  { name: "records (.log)", size: data.objects.log_bytes, crc: data.objects.log_crc32c },
                  { name: "indexes (.indexes)", size: data.objects.indexes_bytes, crc: data.objects.indexes_crc32c },
                  { name: "manifest (.rsm-manifest)", size: data.objects.manifest_bytes, crc: data.objects.manifest_crc32c },
                ]}
                rowKey={(each) => each.name}
                empty=""
              />
            )}
          </>
        )}
      </Loaded>
      <h2>History</h2>
      <Loaded answer={history}>
        {(data) => (
          <Table
            caption="Records of the metadata log about it, oldest first"
            columns={[
              { name: "Offset", cell: (each) => number(each.metadata_offset), numeric: true },
              { name: "When", cell: (each) => time(each.timestamp_ms) },
              { name: "State", cell: (each) => each.state },
              { name: "Record", cell: (each) => each.record },
              { name: "Broker", cell: (each) => each.broker_id, numeric: true },
            ]}
            rows={data.changes}
            rowKey={(each) => `${each.metadata_offset}`}
            empty="The log no longer has records about it."
          />
        )}
      </Loaded>
    </>
  );
}
