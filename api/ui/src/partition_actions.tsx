// The actions on a partition and on its topic, one entry each. The node checks role and facts again in any case.
import { Actions, type Action, type Values } from "./action";
import type { ClusterNodes, PartitionRow, RetentionPlan } from "./answers";
import { ask, partitionPath, path } from "./ask";
import { mode, retention, setMode, setRetention } from "./changes";
import { claimReset, dataPath, deletion, ended, repair, whole, WHY, type Foretold } from "./foretell";
import { bytes, number, plural } from "./format";
import { useAnswer, useLive } from "./live";
import type { Trash, Trashed } from "./trash";

function ofTopic(of: PartitionRow): Action[] {
  const { topic, topic_id } = of;
  return [
    {
      name: "Set the topic's retention",
      explains: "How long the tier keeps records of the whole topic. The dry run is of this partition.",
      role: "admin",
      fields: [{ name: "ms", label: "Milliseconds (empty: no limit)", optional: true }, { name: "bytes", label: "Bytes of a partition (empty: no limit)", optional: true }, WHY],
      dry: (values) => retention(of, values),
      word: () => topic,
      run: (values, { kept }) => setRetention(of, values, kept as object),
    },
    {
      name: "Delete the topic's tiered data",
      explains: "Marks all partitions of the topic; bytes go after seven days, and until then it can be undone.",
      role: "admin",
      fields: [],
      dry: () => deletion(topic, topic_id, false),
      word: () => topic,
      run: () => ask(dataPath(topic, "", { confirm: topic, topic_id }), { method: "DELETE" }),
    },
    {
      name: "Undo the deletion of its tiered data",
      explains: "Takes the marks of the topic back, as long as its bytes stay.",
      role: "admin",
      fields: [],
      dry: () => deletion(topic, topic_id, true),
      word: () => topic,
      run: () => ask(dataPath(topic, "/undo", { topic_id }), { method: "POST" }),
    },
  ];
}

// `notHere`: why this node can't do what only the leader's can.
function ofPartition(of: PartitionRow, notHere: string | null): Action[] {
  const { topic, topic_id, partition } = of;
  const at = (rest: string) => path(partitionPath(topic, partition, rest), { topic_id });
  const post = <T,>(rest: string, body: object) => ask<T>(at(rest), { method: "POST", body });
  const records = (values: Values, dry_run: boolean) => post("/retention/delete-records", { before_offset: whole(values.before), reason: values.why, dry_run });
  const word = () => `${topic}-${partition}`;
  const skipped = async ({ first, last, why }: Values): Promise<Foretold> => {
    const found = await post<{ ranges: { first_offset: number; last_offset: number }[]; offsets: number; why: string; text: string }>("/skip", { reason: why, first_offset: whole(first), last_offset: whole(last), dry_run: true });
    return {
      changes: found.ranges.map((each) => ({ what: `offsets ${number(each.first_offset)} to ${number(each.last_offset)}`, now: "not copied", then: "recorded as lost" })),
      notes: [found.text, ...(found.why ? [found.why] : [])],
      kept: whole(first) === null ? { ranges: found.ranges } : { first_offset: whole(first), last_offset: whole(last) },
    };
  };
  return [
    {
      name: "Repair damaged segments",
      explains: "Reads every byte of the partition in the tier; what is damaged is copied again. The dry run reads as much.",
      role: "admin",
      notHere,
      fields: [],
      dry: () => repair(topic, partition),
      word,
      run: () => ended("/v1/jobs/repair", { topic, partition, apply: true }),
    },
    {
      name: "Reset the claim",
      explains: "Voids a claim that is in the way, and lets the next one cut. Deleting for the topic has to be paused.",
      role: "admin",
      notHere,
      fields: [],
      dry: () => claimReset(at("/claim")),
      word,
      run: (_, { kept }) => post("/claim/reset", kept as object),
    },
    {
      name: "Skip offsets",
      explains: "Gives up offsets that can't be copied, so that copying goes on behind them. Empty: all that the damaged segment in the way lacks.",
      role: "admin",
      fields: [{ name: "first", label: "First offset (may be empty)", optional: true }, { name: "last", label: "Last offset, given up too (may be empty)", optional: true }, WHY],
      dry: skipped,
      word,
      run: ({ why }, { kept }) => post("/skip", { reason: why, dry_run: false, ...(kept as object) }),
    },
    {
      name: "Allow gaps",
      explains: "Offsets without a batch count as removed by compaction, for good: for what a mirror or a restore filled.",
      role: "admin",
      fields: [WHY],
      dry: ({ why }) => post("/allow-gaps", { reason: why, dry_run: true }),
      word,
      run: ({ why }) => post("/allow-gaps", { reason: why, dry_run: false }),
    },
    {
      name: "Delete records",
      explains: "Everything below an offset leaves the tier, for good.",
      role: "admin",
      fields: [{ name: "before", label: "First offset that is kept" }, WHY],
      dry: (values) => records(values, true),
      word,
      run: (values) => records(values, false),
    },
    {
      name: "Change the mode",
      explains: "Who copies and expires this partition.",
      role: "admin",
      fields: [{ name: "mode", label: "Mode", choices: ["paused", "read_only", "sidecar", "delegated"] }],
      dry: (values) => mode(of, values.mode),
      word,
      run: (values, { kept }) => setMode(of, values.mode, kept as object),
    },
  ];
}

async function trashed({ topic, topic_id, partition }: PartitionRow): Promise<Trashed | undefined> {
  const { partitions } = await ask<Trash>(path("/v1/trash", { topic, limit: 1000 }));
  return partitions.find((each) => each.topic_id === topic_id && each.partition === partition);
}

const holder = (of: Trashed | undefined) => (of?.hold ? `held by ${of.hold.who}: ${of.hold.why}` : "goes on");

async function restored(of: PartitionRow): Promise<Foretold> {
  const now = await trashed(of);
  const there = now !== undefined && now.state === "expired";
  return {
    changes: there
      ? [
          { what: "readers start at", now: number(now.readable_from_offset), then: number(now.log_start_offset) },
          { what: "in the trash", now: `${bytes(now.size_bytes)} in ${plural(now.segments, "segment")}`, then: "nothing: readers have all of it" },
          { what: "retention", now: holder(now), then: "held, if the present policy would take the same again" },
        ]
      : [],
    refused: there ? null : "nothing that retention took of this partition is in the trash",
  };
}

async function released(of: PartitionRow): Promise<Foretold> {
  const [now, plan] = await Promise.all([trashed(of), ask<RetentionPlan>(path(partitionPath(of.topic, of.partition, "/retention/plan"), { topic_id: of.topic_id }))]);
  return {
    changes: [{ what: "retention", now: holder(now), then: "goes on with its next pass" }],
    refused: now?.hold ? null : "retention of this partition is not held",
    notes: [`By the policy ${plural(plan.segment_count, "segment")}, ${bytes(plan.expiring_bytes)} of ${bytes(plan.tiered_bytes)}, would go into the trash then. A longer retention, set first, keeps them.`],
  };
}

interface Emptying {
  log_start_offset: number;
  new_log_start_offset: number | null;
  segment_count: number;
  size_bytes: number;
  held_back: string | null;
}

async function emptied(asked: Promise<Emptying>): Promise<Foretold> {
  const found = await asked;
  return {
    changes: [
      { what: "log start", now: number(found.log_start_offset), then: number(found.new_log_start_offset) },
      { what: "in the trash up to there", now: `${bytes(found.size_bytes)} in ${plural(found.segment_count, "whole segment")}`, then: "deleted: nothing brings it back" },
    ],
    notes: ["What comes into the trash after this dry run stays."],
    refused: found.held_back,
    kept: { up_to_offset: found.new_log_start_offset },
  };
}

function ofTrash(of: PartitionRow): Action[] {
  const post = <T,>(rest: string, body: object) => ask<T>(path(partitionPath(of.topic, of.partition, `/trash/${rest}`), { topic_id: of.topic_id }), { method: "POST", body });
  const word = () => `${of.topic}-${of.partition}`;
  return [
    {
      name: "Restore from the trash",
      explains: "Readers have again what retention took and is not deleted yet.",
      role: "admin",
      fields: [WHY],
      dry: () => restored(of),
      word,
      run: ({ why }) => post("restore", { why }),
    },
    {
      name: "Release the hold",
      explains: "Retention, which waits since a restore, goes on by the policy that stands.",
      role: "admin",
      fields: [WHY],
      dry: () => released(of),
      word,
      run: ({ why }) => post("release", { why }),
    },
    {
      name: "Empty the trash",
      explains: "What retention took of this partition is deleted now, for good.",
      role: "admin",
      fields: [WHY],
      dry: ({ why }) => emptied(post<Emptying>("empty", { reason: why, dry_run: true })),
      word,
      run: ({ why }, { kept }) => post("empty", { reason: why, dry_run: false, ...(kept as object) }),
    },
  ];
}

function whyNotHere(row: PartitionRow, here: number | undefined, nodes: ClusterNodes | null): string | null {
  if (row.role !== "leader") return "no node that answered stands beside the partition's leader";
  if (row.node === here) return null;
  const url = nodes?.nodes.find((each) => each.node_id === row.node)?.http;
  return `only node ${row.node}, beside the partition's leader, can: open its page${url ? `, ${url}/ui` : ""}`;
}

export function PartitionActions({ of }: { of: PartitionRow }) {
  const { state } = useLive();
  const nodes = useAnswer<ClusterNodes>("/v1/nodes", false);
  const name = `${of.topic}-${of.partition}`;
  return (
    <>
      <h3>On this partition</h3>
      <Actions actions={ofPartition(of, whyNotHere(of, state?.node_id, nodes.data))} name={`Actions on ${name}`} />
      <h3>Its trash</h3>
      <Actions actions={ofTrash(of)} name={`Trash of ${name}`} />
      <h3>On the whole topic {of.topic}</h3>
      <Actions actions={ofTopic(of)} name={`Actions on ${of.topic}`} />
    </>
  );
}
