// Dry runs of what the node does not try itself: the present state, and what it would become.
import { ask, path } from "./ask";
import { bytes, number, plural, time } from "./format";

export interface Change {
  what: string;
  now: string;
  then: string;
}

// `refused`: why the node would not do it. `answer`: the node's own dry run. `kept`: what `run` needs of it, not shown.
export interface Foretold {
  changes: Change[];
  notes?: string[];
  refused?: string | null;
  answer?: unknown;
  kept?: unknown;
}

export const isForetold = (value: unknown): value is Foretold => typeof value === "object" && value !== null && Array.isArray((value as Foretold).changes);

export const WHY = { name: "why", label: "Why (stands in the audit)" };

export function whole(text: string): number | null {
  if (text === "") return null;
  if (!/^\d{1,15}$/.test(text)) throw new Error(`${text} is no whole number`);
  return Number(text);
}

const JOB_POLL_MS = 500;
const JOB_DEADLINE_MS = 30 * 60_000;

interface Job {
  id: string;
  state: string;
}

// A job of the node, until it has ended. Leaving the dialog does not end it.
export async function ended<T extends Job>(address: string, body: object): Promise<T> {
  let job = await ask<T>(address, { method: "POST", body });
  const kind = address.endsWith("/repair") ? "/v1/jobs/repair" : "/v1/jobs";
  const end = performance.now() + JOB_DEADLINE_MS;
  while (job.state === "running" && performance.now() < end) {
    await new Promise((done) => setTimeout(done, JOB_POLL_MS));
    job = await ask<T>(`${kind}/${job.id}`);
  }
  return job;
}

export const pausedBy = (by: { who: string; why: string } | undefined) => (by === undefined ? "goes on" : `paused by ${by.who}: ${by.why || "no reason given"}`);

export interface QuorumReplica {
  node_id: number;
  log_end_offset: number | null;
  lag: number | null;
}

export interface QuorumAnswer {
  leader_id: number | null;
  leader_epoch: number;
  voters: QuorumReplica[];
  observers: QuorumReplica[];
}

export const LEADERS_WORD = "/v1/quorum?by_leader=true";

export async function transfer(to: number | null): Promise<Foretold> {
  const quorum = await ask<QuorumAnswer>(LEADERS_WORD);
  const voter = quorum.voters.find((each) => each.node_id === to);
  const changes = [
    { what: "leader of the quorum", now: quorum.leader_id === null ? "none known" : `node ${quorum.leader_id}`, then: `node ${to}` },
    { what: "epoch", now: number(quorum.leader_epoch), then: `${number(quorum.leader_epoch + 1)} or later` },
    { what: `node ${to} has yet to fetch`, now: voter?.lag == null ? "not known" : plural(voter.lag, "offset"), then: "0 offsets" },
  ];
  const ids = quorum.voters.map((each) => each.node_id).join(", ");
  const refused = voter === undefined ? `node ${to} does not vote; voters are ${ids}` : quorum.leader_id === to ? `node ${to} leads already` : null;
  return { changes, refused, notes: ["Changes of the metadata wait for the election, about a second. Nothing is copied anew."] };
}

interface Tiered {
  partitions: { partition: number; topic_id: string; remote_segments: number; remote_bytes: number; delete_state: string | null; goes_from_ms: number | null }[];
  next_cursor: string | null;
}

const GRACE_MS = 7 * 86_400_000;

export async function deletion(topic: string, topicId: string, undo: boolean): Promise<Foretold> {
  const page = await ask<Tiered>(`/v1/topics/${encodeURIComponent(topic)}/tiered-data?limit=1000`);
  const all = page.partitions.filter((each) => each.topic_id === topicId);
  const marked = all.filter((each) => each.delete_state === "marked");
  const free = all.filter((each) => each.delete_state === null);
  const gone = all.length - marked.length - free.length;
  const sum = (some: typeof all) => `${bytes(some.reduce((total, each) => total + each.remote_bytes, 0))} in ${plural(some.length, "partition")}`;
  const first = Math.min(...marked.map((each) => each.goes_from_ms ?? Infinity));
  const changes = undo
    ? [{ what: sum(marked), now: `marked, deleted from about ${time(Number.isFinite(first) ? first : null)} on`, then: "kept; copying goes on" }]
    : [{ what: sum(free), now: "copied and read", then: `read, not copied, deleted from about ${time(Date.now() + GRACE_MS)} on` }];
  if (!undo && marked.length > 0) changes.push({ what: sum(marked), now: "marked already", then: "marked as before" });
  if (gone > 0) changes.push({ what: plural(gone, "partition"), now: "its deletion has begun", then: "deleted: nothing brings it back" });
  const none = undo ? marked.length === 0 : free.length === 0;
  return {
    changes: changes.filter((each) => !each.what.startsWith("0 B in 0 ")),
    refused: null,
    notes: [...(none ? [undo ? "No partition is marked for deletion: nothing would change." : "Every partition is marked already: nothing would change."] : []), ...(page.next_cursor ? ["Of the first thousand partitions; the others change as well."] : [])],
  };
}

interface Limits {
  copy_bytes_per_s: number | null;
  read_bytes_per_s: number | null;
  topics: Record<string, unknown>;
  revision: number;
}

const rate = (value: number | null) => (value === null ? "no limit" : `${bytes(value)} a second`);

export async function limits(copy: number | null, read: number | null): Promise<Foretold> {
  const now = await ask<Limits>("/v1/node/limits");
  return {
    changes: [
      { what: "copies to the stores", now: rate(now.copy_bytes_per_s), then: rate(copy) },
      { what: "reads from the stores", now: rate(now.read_bytes_per_s), then: rate(read) },
    ],
    notes: [`Transfers under way change as well. Limits of ${plural(Object.keys(now.topics).length, "topic")} stay. A restart of the node brings back those of its settings.`],
    kept: { topics: now.topics, replaces_revision: now.revision },
  };
}

export async function removal(node: number | null): Promise<Foretold> {
  const found = await ask<{ liveness: string; liveness_since_ms: number; quorum_role: string }>(`/v1/nodes/${node}`);
  const votes = found.quorum_role !== "observer";
  const refused = votes ? `node ${node} is a voter of the quorum: \`strandline quorum remove-voter ${node}\` first` : found.liveness === "live" ? `node ${node} lives` : null;
  return {
    changes: [{ what: `node ${node}`, now: `${found.liveness} since ${time(found.liveness_since_ms)}`, then: "off the list; no problem is told of it" }],
    refused: found.liveness === "removed" ? null : refused,
    notes: ["Nothing of what it copied changes. Its claims stand until another leader's, and its next start lists it again."],
  };
}

interface Collection extends Job {
  text: string;
  listed: number;
  found: Record<string, { objects: number; size_bytes: number; examples: string[] }>;
  deleted: { objects: number; size_bytes: number };
  held_back: Record<string, number>;
}

export async function collection(): Promise<Foretold> {
  const job = await ended<Collection>("/v1/jobs/collect", { apply: false });
  const of = (name: string) => job.found[name] ?? { objects: 0, size_bytes: 0, examples: [] };
  const told = (name: string) => `${plural(of(name).objects, "object")}, ${bytes(of(name).size_bytes)}`;
  return {
    changes: [
      { what: "orphans: of segments that were deleted", now: told("orphan"), then: "deleted, but for what is held back" },
      { what: "in use, or wait for their time", now: plural(["live", "copy_pending", "delete_pending", "own"].reduce((sum, name) => sum + of(name).objects, 0), "object"), then: "kept" },
      { what: "unknown to the metadata log", now: told("foreign"), then: "kept: never touched" },
    ],
    refused: job.state === "failed" ? job.text : null,
    notes: [
      `${job.state}: ${job.text || `${number(job.listed)} objects were looked at`}`,
      ...Object.entries(job.held_back).map(([why, count]) => `${plural(count, "orphan")} held back: ${why.replaceAll("_", " ")}`),
      ...of("orphan").examples.slice(0, 5).map((each) => `such as ${each}`),
    ],
  };
}

interface Repair extends Job {
  text: string;
  checked: number;
  checked_bytes: number;
  damaged: number;
  segments: { start_offset: number; end_offset: number; wrong: string; action: string; source: string }[];
  elsewhere: string[];
  unread: string[];
}

const REPAIRS: Record<string, string> = { copy_anew: "copied again under a new id", retire: "goes: other segments serve its offsets", leave: "stays as it is" };

export async function repair(topic: string, partition: number): Promise<Foretold> {
  const run = await ended<Repair>("/v1/jobs/repair", { topic, partition, apply: false });
  return {
    changes: run.segments.map((each) => ({ what: `offsets ${number(each.start_offset)} to ${number(each.end_offset)}`, now: each.wrong, then: `${REPAIRS[each.action] ?? each.action}${each.source ? `, from ${each.source}` : ""}` })),
    refused: run.state === "failed" ? run.text : run.elsewhere.length > 0 ? `another node leads ${run.elsewhere.join(", ")}` : null,
    notes: [`${plural(run.checked, "segment")}, ${bytes(run.checked_bytes)}, read and compared byte by byte: ${number(run.damaged)} damaged.`, ...run.unread.slice(0, 10).map((each) => `could not be read: ${each}`)],
  };
}

interface Course {
  verdict: string;
  text: string;
  cut_at: number | null;
  cut_offsets: number;
}

interface ClaimAnswer {
  claim: { token: number; leader_epoch: number; incarnation: { node_id: number } } | null;
  claim_stands: boolean;
  next_claim: { as_it_is: Course; after_reset: Course } | null;
  why_no_next_claim: string | null;
  cut_off_segments: number;
  cut_off_bytes: number;
  reset_refused: { reason: string; text: string } | null;
}

export async function claimReset(address: string): Promise<Foretold> {
  const now = await ask<ClaimAnswer>(address);
  const after = now.next_claim?.after_reset;
  const claim = now.claim === null ? "none" : `of node ${now.claim.incarnation.node_id}, epoch ${number(now.claim.leader_epoch)}${now.claim_stands ? "" : ", voided"}`;
  return {
    changes: [
      { what: "claim", now: claim, then: "voided; this node claims next" },
      { what: "the next claim", now: now.next_claim ? `${now.next_claim.as_it_is.verdict}: ${now.next_claim.as_it_is.text}` : now.why_no_next_claim ?? "none", then: after ? `${after.verdict}: ${after.text}` : "none" },
      { what: "segments that readers lose", now: "0", then: `${plural(now.cut_off_segments, "segment")}, ${bytes(now.cut_off_bytes)}, ${plural(after?.cut_offsets ?? 0, "offset")}` },
    ],
    refused: now.reset_refused?.text ?? null,
    kept: { token: now.claim?.token, cut_at: after?.cut_at ?? null, cut_offsets: after?.cut_offsets ?? 0 },
  };
}

export const dataPath = (topic: string, rest = "", query = {}) => path(`/v1/topics/${encodeURIComponent(topic)}/tiered-data${rest}`, query);
