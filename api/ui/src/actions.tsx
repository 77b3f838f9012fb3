// The actions: each with its dry run. The node checks role and facts again in any case.
import { Actions, type Action, type Values } from "./action";
import type { PartitionName } from "./answers";
import { ask, partitionPath, path } from "./ask";

const WHY = { name: "why", label: "Why (stands in the audit)" };

function whole(text: string): number | null {
  if (text === "") return null;
  if (!/^\d{1,18}$/.test(text)) throw new Error(`${text} is no whole number`);
  return Number(text);
}

async function standing(setting: string): Promise<unknown> {
  const { settings } = await ask<{ settings: { setting: string }[] }>("/v1/settings");
  return settings.filter((each) => each.setting === setting);
}

const setting = (name: string, scope: object, value: boolean, why: string) => ask(`/v1/settings/${name}`, { method: "PUT", body: { scope, value, why } });

const CLUSTER: Action[] = [
  {
    name: "Tier topics, or end it",
    explains: "Which topics are copied to the tier, by name or pattern, on all nodes.",
    role: "admin",
    fields: [{ name: "topic", label: "Topic name or pattern" }, { name: "what", label: "From now on", choices: ["tiered", "not tiered"] }, WHY],
    dry: ({ topic, what }) => ask(path("/v1/cluster/tiering-effect", { name: topic, tiered: what === "tiered", limit: 100 })),
    word: ({ topic }) => topic,
    run: ({ topic, what, why }) => setting("topics.tiered", { kind: "topic", name: topic }, what === "tiered", why),
  },
  {
    name: "Pause or resume the cluster",
    explains: "Copying or deleting, on all nodes. Copies under way finish.",
    role: "admin",
    fields: [{ name: "what", label: "What", choices: ["copying", "deleting"] }, { name: "state", label: "Then it is", choices: ["paused", "running"] }, WHY],
    dry: async ({ what, state }) => ({
      then: `${what} of all nodes is ${state}`,
      set_now: await standing(`${what}.paused`),
      under_way: (await ask<{ total: object }>("/v1/cluster/running?limit=1")).total,
    }),
    word: ({ what }) => what,
    run: ({ what, state, why }) => setting(`${what}.paused`, { kind: "cluster" }, state === "paused", why),
  },
  {
    name: "Pause or resume this node",
    explains: "Copying or deleting, on the node that serves this page.",
    role: "operate",
    fields: [{ name: "what", label: "What", choices: ["copying", "deleting"] }, { name: "state", label: "Then it is", choices: ["paused", "running"] }, WHY],
    dry: async ({ what, state }) => ({ then: `${what} of this node is ${state}`, now: await ask("/v1/node/switches") }),
    word: ({ what }) => what,
    run: ({ what, state, why }) => ask(`/v1/node/switches/${what}`, { method: "PUT", body: { paused: state === "paused", why } }),
  },
  {
    name: "Hand over leadership",
    explains: "Of the metadata quorum, to another voter that keeps up.",
    role: "admin",
    fields: [{ name: "node", label: "Node id of the voter" }],
    dry: async ({ node }) => ({ then: `node ${whole(node)} leads`, quorum: await ask("/v1/quorum") }),
    word: ({ node }) => node,
    run: ({ node }) => ask("/v1/quorum/transfer", { method: "POST", body: { node_id: whole(node) } }),
  },
];

export function ClusterActions() {
  return (
    <>
      <h1>Actions</h1>
      <p>Each shows first what it would do, and asks for a word. Those of a topic are on the pages of its partitions.</p>
      <Actions actions={CLUSTER} name="Actions on the cluster" />
    </>
  );
}

async function policy(topic: string, topicId: string, values: Values): Promise<unknown> {
  const now = await ask<Record<string, unknown>>(path(`/v1/topics/${topic}/policy`, { topic_id: topicId }));
  const kept = Object.fromEntries(["copy_paused", "delete_paused", "follow_delete_records"].map((name) => [name, now[name]]));
  const body = { ...kept, topic_id: topicId, retention_ms: whole(values.ms), retention_bytes: whole(values.bytes), replaces_offset: now.offset, why: values.why };
  return ask(`/v1/topics/${topic}/policy`, { method: "PUT", body });
}

function ofPartition({ topic, topic_id, partition }: PartitionName): Action[] {
  const at = (rest: string) => path(partitionPath(topic, partition, rest), { topic_id });
  const records = (values: Values, dry_run: boolean) => ask(at("/retention/delete-records"), { method: "POST", body: { before_offset: whole(values.before), reason: values.why, dry_run } });
  const mode = (values: Values, dry_run: boolean) => ask(at("/mode"), { method: "PUT", body: { mode: values.mode, confirm: topic, dry_run } });
  const data = `/v1/topics/${topic}/tiered-data`;
  return [
    {
      name: "Set the topic's retention",
      explains: "How long the tier keeps records of the whole topic. The dry run is of this partition.",
      role: "admin",
      fields: [{ name: "ms", label: "Milliseconds (empty: no limit)", optional: true }, { name: "bytes", label: "Bytes of a partition (empty: no limit)", optional: true }, WHY],
      dry: ({ ms, bytes }) => ask(at("/retention/plan"), { method: "POST", body: { retention_ms: whole(ms), retention_bytes: whole(bytes) } }),
      word: () => topic,
      run: (values) => policy(topic, topic_id, values),
    },
    {
      name: "Delete records",
      explains: "Everything below an offset leaves the tier, for good.",
      role: "admin",
      fields: [{ name: "before", label: "First offset that is kept" }, WHY],
      dry: (values) => records(values, true),
      word: () => `${topic}-${partition}`,
      run: (values) => records(values, false),
    },
    {
      name: "Change the mode",
      explains: "Who copies and expires this partition.",
      role: "admin",
      fields: [{ name: "mode", label: "Mode", choices: ["paused", "read_only", "sidecar", "delegated"] }],
      dry: (values) => mode(values, true),
      word: () => `${topic}-${partition}`,
      run: (values) => mode(values, false),
    },
    {
      name: "Delete the topic's tiered data",
      explains: "Marks all partitions of the topic; bytes go after seven days, and until then it can be undone.",
      role: "admin",
      fields: [],
      dry: () => ask(`${data}?limit=100`),
      word: () => topic,
      run: () => ask(path(data, { confirm: topic, topic_id }), { method: "DELETE" }),
    },
    {
      name: "Undo the deletion of its tiered data",
      explains: "Takes the marks of the topic back, as long as its bytes stay.",
      role: "admin",
      fields: [],
      dry: () => ask(`${data}?limit=100`),
      word: () => topic,
      run: () => ask(path(`${data}/undo`, { topic_id }), { method: "POST" }),
    },
  ];
}

export function PartitionActions({ of }: { of: PartitionName }) {
  return <Actions actions={ofPartition(of)} name={`Actions on ${of.topic}-${of.partition}`} />;
}
