// The actions on the cluster and on the node asked, one entry each. The node checks role and facts again in any case.
import { Actions, type Action } from "./action";
import { ask } from "./ask";
import { clusterPause, nodePause, pauseCluster, pauseNode, tier, tiering } from "./changes";
import { collection, ended, limits, removal, transfer, WHY, whole } from "./foretell";

const WORK = { name: "what", label: "What", choices: ["copying", "deleting"] };
const STATE = { name: "state", label: "Then it is", choices: ["paused", "running"] };

const CLUSTER: Action[] = [
  {
    name: "Pause or resume the cluster",
    explains: "Copying or deleting, on all nodes.",
    role: "admin",
    fields: [WORK, STATE, WHY],
    dry: ({ what, state }) => clusterPause(what, state),
    word: ({ what }) => what,
    run: ({ what, state, why }, { kept }) => pauseCluster(what, state, why, kept as Parameters<typeof pauseCluster>[3]),
  },
  {
    name: "Tier topics, or end it",
    explains: "Which topics are copied to the tier, by name or pattern, on all nodes.",
    role: "admin",
    fields: [{ name: "topic", label: "Topic name or pattern" }, { name: "what", label: "From now on", choices: ["tiered", "not tiered"] }, WHY],
    dry: ({ topic, what }) => tiering(topic, what),
    word: ({ topic }) => topic,
    run: ({ topic, what, why }, { kept }) => tier(topic, what, why, kept as Parameters<typeof tier>[3]),
  },
  {
    name: "Hand over leadership",
    explains: "Of the metadata quorum, to another voter that keeps up.",
    role: "admin",
    fields: [{ name: "node", label: "Node id of the voter" }],
    dry: ({ node }) => transfer(whole(node)),
    word: ({ node }) => node,
    run: ({ node }) => ask("/v1/quorum/transfer", { method: "POST", body: { node_id: whole(node) } }),
  },
  {
    name: "Remove a node",
    explains: "One that is gone for good leaves the list of nodes.",
    role: "admin",
    fields: [{ name: "node", label: "Node id" }],
    dry: ({ node }) => removal(whole(node)),
    word: ({ node }) => node,
    run: ({ node }) => ask(`/v1/nodes/${whole(node)}`, { method: "DELETE" }),
  },
  {
    name: "Collect orphans",
    explains: "Objects of deleted segments that stayed in the stores go. The dry run lists the stores, which takes a while.",
    role: "admin",
    fields: [{ name: "most", label: "Allow so many orphans to go, whatever share that is (empty: a small share)", optional: true }],
    dry: collection,
    word: () => "collect",
    run: ({ most }) => ended("/v1/jobs/collect", { apply: true, accept_objects: whole(most) ?? 0 }),
  },
];

const NODE: Action[] = [
  {
    name: "Pause or resume this node",
    explains: "Copying or deleting, on the node that serves this page.",
    role: "operate",
    fields: [WORK, STATE, WHY],
    dry: ({ what, state }) => nodePause(what, state),
    word: ({ what }) => what,
    run: ({ what, state, why }, { kept }) => pauseNode(what, state, why, kept as Parameters<typeof pauseNode>[3]),
  },
  {
    name: "Limit this node's rates",
    explains: "Bytes a second to the stores and from them, until the node restarts.",
    role: "operate",
    fields: [{ name: "copy", label: "Copies, bytes a second (empty: no limit)", optional: true }, { name: "read", label: "Reads, bytes a second (empty: no limit)", optional: true }],
    dry: ({ copy, read }) => limits(whole(copy), whole(read)),
    word: () => "limits",
    run: ({ copy, read }, { kept }) => ask("/v1/node/limits", { method: "PUT", body: { copy_bytes_per_s: whole(copy), read_bytes_per_s: whole(read), ...(kept as object) } }),
  },
];

export function ClusterActions() {
  return (
    <>
      <h1>Actions</h1>
      <p>Each shows first what it would do, and asks for a word. Those of a topic or a partition are on the pages of its partitions.</p>
      <h2>On the whole cluster</h2>
      <Actions actions={CLUSTER} name="Actions on the cluster" />
      <h2>On this node</h2>
      <Actions actions={NODE} name="Actions on this node" />
    </>
  );
}
