// Changes that two admins can make at once. Each names what its dry run saw and replaces nothing else: the node
// answers 409 where something else stands by then. So a dry run reads what stands before it reads anything else.
import { ask, partitionPath, path, ProblemError } from "./ask";
import { pausedBy, whole, type Change, type Foretold } from "./foretell";
import { bytes, number, plural } from "./format";
import type { Trash, Trashed } from "./trash";

interface Scope {
  kind: string;
  name: string;
}

interface Standing {
  setting: string;
  scope: Scope;
  value: string;
  who: string;
  why: string;
  offset: number;
}

const CLUSTER: Scope = { kind: "cluster", name: "" };
const TIERED = "topics.tiered";

const standing = async (setting: string): Promise<Standing[]> => (await ask<{ settings: Standing[] }>("/v1/settings")).settings.filter((each) => each.setting === setting);
const change = (setting: string, scope: Scope, value: boolean | null, why: string, replaces_offset: number | null) => ask<object>(`/v1/settings/${setting}`, { method: "PUT", body: { scope, value, why, replaces_offset } });
const by = (row: Standing) => `${row.who}: ${row.why || "no reason given"}`;
const conflict = (detail: string) => new ProblemError({ status: 409, kind: "conflict", detail });

// `exceptions`: nodes that go on whatever the cluster's setting says. They end with each change of that.
interface SeenPauses {
  replaces: number | null;
  exceptions: { scope: Scope; offset: number }[];
}

function ofNodes(work: string, paused: boolean, exceptions: Standing[], own: Standing[]): Change[] {
  const then = paused ? "paused: it is no exception any more" : "goes on, where nothing else pauses it";
  return [
    ...exceptions.map((each) => ({ what: `${work} of node ${each.scope.name}`, now: `goes on, an exception by ${by(each)}`, then })),
    ...own.map((each) => ({ what: `${work} of node ${each.scope.name}`, now: pausedBy(each), then: "stays paused, by its own setting" })),
  ];
}

export async function clusterPause(work: string, state: string): Promise<Foretold> {
  const rows = await standing(`${work}.paused`);
  const { total, nodes } = await ask<{ total: { copies: number; deletions: number }; nodes: { node: number }[] }>("/v1/cluster/running?limit=1");
  const cluster = rows.find((each) => each.scope.kind === "cluster");
  const stands = cluster?.value === "true" ? cluster : undefined;
  const exceptions = rows.filter((each) => each.scope.kind === "node" && each.value === "false");
  const own = rows.filter((each) => each.scope.kind === "node" && each.value === "true");
  const apart = nodes.filter(({ node }) => [...exceptions, ...own].some((each) => each.scope.name === `${node}`)).length;
  const paused = state === "paused";
  const rest = apart === 0 ? `all ${plural(nodes.length, "node")}` : `${plural(nodes.length - apart, "node")} without a setting of their own`;
  const under = work === "copying" ? plural(total.copies, "copy", "copies") : plural(total.deletions, "deletion");
  const changes = [{ what: `${work} of ${rest}`, now: pausedBy(stands), then: paused ? "paused: nothing new is begun" : "goes on, where nothing else pauses it" }, ...ofNodes(work, paused, exceptions, own)];
  if (paused) changes.push({ what: "under way now", now: under, then: work === "copying" ? "each of them finishes" : "waits until it is resumed" });
  const same = paused === (stands !== undefined);
  const kept: SeenPauses = { replaces: cluster?.offset ?? null, exceptions: exceptions.map(({ scope, offset }) => ({ scope, offset })) };
  return {
    changes,
    notes: [
      ...(same ? [`The cluster is ${state} already${stands ? `, by ${stands.who}, whose reason stays` : ""}: ${exceptions.length > 0 ? "only the exceptions end" : "nothing would change"}.`] : []),
      ...(paused ? ["Reading goes on. Nothing is lost by it while brokers keep their segments."] : ["A node's own switch and a topic's policy stay as they are: either keeps its part paused."]),
    ],
    kept,
  };
}

// "Running" is no setting at all: one that says so would count as wider than a node's, and make exceptions.
export async function pauseCluster(work: string, state: string, why: string, { replaces, exceptions }: SeenPauses): Promise<unknown> {
  const setting = `${work}.paused`;
  const answer = await change(setting, CLUSTER, state === "paused" ? true : null, why, replaces);
  for (const each of exceptions) await change(setting, each.scope, null, why, each.offset);
  const left = (await standing(setting)).filter((each) => each.scope.kind === "node" && each.value === "false");
  if (left.length > 0) throw conflict(`the cluster is ${state}, but meanwhile ${left.map((each) => `node ${each.scope.name} was made an exception by ${by(each)}`).join("; ")}`);
  return { ...answer, exceptions_ended: exceptions.map((each) => `node ${each.scope.name}`) };
}

const tieredBy = (row: Standing | undefined) => (row === undefined ? "none: other patterns, or the nodes' files, decide" : `${row.value === "true" ? "tiered" : "not tiered"}, by ${by(row)}`);

export async function tiering(topic: string, what: string): Promise<Foretold> {
  const stands = (await standing(TIERED)).find((each) => each.scope.name === topic);
  const answer = await ask(path("/v1/cluster/tiering-effect", { name: topic, tiered: what === "tiered", limit: 100 }));
  return { changes: [{ what: `setting for ${topic}`, now: tieredBy(stands), then: what }], answer, kept: { replaces: stands?.offset ?? null } };
}

export const tier = (topic: string, what: string, why: string, { replaces }: { replaces: number | null }) => change(TIERED, { kind: "topic", name: topic }, what === "tiered", why, replaces);

interface OfTopic {
  topic: string;
  topic_id: string;
  partition: number;
}

interface Policy {
  retention_ms: number | null;
  retention_bytes: number | null;
  copy_paused: boolean;
  delete_paused: boolean;
  follow_delete_records: boolean;
  offset: number | null;
}

const policyPath = (topic: string) => `/v1/topics/${encodeURIComponent(topic)}/policy`;
const ms = (value: number | null) => (value === null ? "no limit" : `${number(value)} ms`);
const size = (value: number | null) => (value === null ? "no limit" : bytes(value));

export async function retention({ topic, topic_id, partition }: OfTopic, values: Record<string, string>): Promise<Foretold> {
  const body = { retention_ms: whole(values.ms), retention_bytes: whole(values.bytes) };
  const now = await ask<Policy>(path(policyPath(topic), { topic_id }));
  const answer = await ask(path(partitionPath(topic, partition, "/retention/plan"), { topic_id }), { method: "POST", body });
  const { copy_paused, delete_paused, follow_delete_records, offset } = now;
  const { partitions } = await ask<Trash>(path("/v1/trash", { topic, limit: 1000 }));
  const taken = partitions.filter((each) => each.topic_id === topic_id && each.state === "expired");
  const sum = (of: (each: Trashed) => number) => taken.reduce((total, each) => total + of(each), 0);
  return {
    changes: [
      { what: "records are kept for", now: ms(now.retention_ms), then: ms(body.retention_ms) },
      { what: "kept of each partition", now: size(now.retention_bytes), then: size(body.retention_bytes) },
    ],
    answer,
    notes: taken.length === 0 ? [] : [`${bytes(sum((each) => each.size_bytes))} of the topic in ${plural(sum((each) => each.segments), "segment")} are in the trash, and go when their time there is over, whatever is kept from now on: only a restore brings them back.`],
    kept: { copy_paused, delete_paused, follow_delete_records, replaces_offset: offset },
  };
}

export const setRetention = ({ topic, topic_id }: OfTopic, values: Record<string, string>, kept: object) =>
  ask(policyPath(topic), { method: "PUT", body: { ...kept, topic_id, retention_ms: whole(values.ms), retention_bytes: whole(values.bytes), why: values.why } });

export async function mode({ topic, topic_id, partition }: OfTopic, wanted: string): Promise<Foretold> {
  const now = await ask<{ mode: string; mode_offset: number | null; text: string; next_claim: object | null }>(path(partitionPath(topic, partition, "/mode"), { topic_id }), { method: "PUT", body: { mode: wanted, dry_run: true } });
  return { changes: [{ what: `mode of ${topic}-${partition}`, now: now.mode, then: wanted }], notes: [now.text], answer: now.next_claim && { next_claim: now.next_claim }, kept: { replaces_offset: now.mode_offset } };
}

export const setMode = ({ topic, topic_id, partition }: OfTopic, wanted: string, kept: object) =>
  ask(path(partitionPath(topic, partition, "/mode"), { topic_id }), { method: "PUT", body: { ...kept, mode: wanted, confirm: topic, dry_run: false } });

type Pause = { by: string; why: string; since_ms: number } | null;

interface Switches {
  node_id: number;
  copying: Pause;
  deleting: Pause;
  copies_in_flight: number;
}

const switchOf = (switches: Switches, work: string) => (work === "copying" ? switches.copying : switches.deleting);

export async function nodePause(work: string, state: string): Promise<Foretold> {
  const switches = await ask<Switches>("/v1/node/switches");
  const stands = switchOf(switches, work);
  const paused = state === "paused";
  const changes = [{ what: `${work} of node ${switches.node_id}`, now: pausedBy(stands === null ? undefined : { who: stands.by, why: stands.why }), then: paused ? "paused: nothing new is begun" : "goes on, where no setting of the cluster pauses it" }];
  if (paused && work === "copying") changes.push({ what: "under way now", now: plural(switches.copies_in_flight, "copy", "copies"), then: "each of them finishes" });
  return { changes, notes: [...(paused === (stands !== null) ? [`It is ${state} already: only who, when and why would be new.`] : []), "Other nodes go on as they are. It holds over a restart of this one."], kept: { stands } };
}

// A switch has no offset to name: it is looked at once more, which leaves a moment instead of the time of the dialog.
export async function pauseNode(work: string, state: string, why: string, { stands }: { stands: Pause }): Promise<unknown> {
  const now = switchOf(await ask<Switches>("/v1/node/switches"), work);
  if (now?.since_ms !== stands?.since_ms || now?.by !== stands?.by) throw conflict(now === null ? `${work} of the node was resumed meanwhile` : `${work} of the node was paused meanwhile by ${now.by}: ${now.why || "no reason given"}`);
  return ask(`/v1/node/switches/${work}`, { method: "PUT", body: { paused: state === "paused", why } });
}
