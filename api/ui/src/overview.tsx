// The first view: is the data safe, and if not, what to look at.
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import type { Lagging, LiveState, Running, WholeLag, WholeProblems, WholeRunning } from "./answers";
import { age, bytes, number, plural, time } from "./format";
import { LAG_ADDRESS, noteLag, useLagHistory } from "./lag_history";
import { useAnswer, useLive, type Answer } from "./live";
import { Card, Loaded, PartitionLink, Silent, Status, Table, Trouble, type Tone } from "./parts";

const Line = lazy(() => import("./chart"));

interface Verdict {
  tone: Tone;
  text: string;
  why: string[];
}

const TOLD_MAX = 3;

interface SharedProblem {
  nodes: number[];
  about: string;
  name: string | null;
  text: string;
}

// The same problem of several nodes is one line.
function together({ problems }: WholeProblems): SharedProblem[] {
  const found = new Map<string, SharedProblem>();
  for (const { node, ...rest } of problems) {
    const key = JSON.stringify([rest.about, rest.name, rest.text]);
    const known = found.get(key);
    if (known === undefined) found.set(key, { ...rest, nodes: [node] });
    else known.nodes.push(node);
  }
  return [...found.values()];
}

const ofNodes = (nodes: number[]): string => `${nodes.length === 1 ? "node" : "nodes"} ${nodes.join(", ")}`;

export function verdictOf(lag: WholeLag, { data: problems, problem }: Answer<WholeProblems>, state: LiveState | null): Verdict {
  const { total } = lag;
  const bad: string[] = [];
  const warn: string[] = [];
  if (total.gone_offsets > 0) bad.push(`${plural(total.gone_offsets, "offset")} left a broker's disk before they were copied`);
  if (total.blocked > 0) bad.push(`${plural(total.blocked, "partition")} blocked by a damaged segment`);
  if (state !== null && state.leader_id === null) bad.push("the metadata quorum has no leader that this node knows of");
  const silent = lag.nodes.filter((each) => !each.answered);
  for (const each of silent) warn.push(`node ${each.node} does not answer (${each.reason}): what it has not copied is not counted here`);
  for (const each of (problems?.nodes ?? []).filter((each) => !each.answered && !silent.some(({ node }) => node === each.node))) warn.push(`node ${each.node} does not tell its problems (${each.reason})`);
  if (problem !== null) warn.push(`the nodes' problems are not known, or not as of now: ${problem.detail}`);
  const told = problems === null ? [] : together(problems);
  for (const each of told.slice(0, TOLD_MAX)) warn.push(`${ofNodes(each.nodes)}: ${each.text}`);
  if (told.length > TOLD_MAX) warn.push(`${plural(told.length - TOLD_MAX, "further problem")}, told below`);
  const unread = problems?.log_dir_problem_count ?? 0;
  if (unread > 0) warn.push(`${plural(unread, "problem")} in log directories, told below: what can't be read there is not copied`);
  if (bad.length > 0) return { tone: "bad", text: "Data is at risk", why: [...bad, ...warn] };
  if (warn.length > 0) return { tone: "warn", text: "No loss is known, but look at this", why: warn };
  if (problems === null) return { tone: "idle", text: "Looking", why: ["what the nodes tell of their problems has not come yet"] };
  if (total.partitions === 0) return { tone: "idle", text: "Nothing is tiered yet", why: ["no node leads a partition that is tiered"] };
  return { tone: "good", text: "All data is safe", why: [total.segments === 0 ? "every sealed segment is in the tier" : "what is sealed and not in the tier yet is on the brokers' disks"] };
}

function Cost({ tiered }: { tiered: number }) {
  const [price, setPrice] = useState(sessionStorage.getItem("strandline.price") ?? "");
  const each = Number.parseFloat(price);
  return (
    <>
      <label>
        Price of a GB and month
        <input
          inputMode="decimal"
          value={price}
          onChange={(event) => {
            setPrice(event.target.value);
            sessionStorage.setItem("strandline.price", event.target.value);
          }}
        />
      </label>
      <p>{each > 0 ? `${((tiered / 1e9) * each).toFixed(2)} a month, without requests` : "Say your store's price to see the cost."}</p>
    </>
  );
}

function QuorumCard({ state }: { state: LiveState | null }) {
  if (state === null) return <p aria-busy="true">Waiting for the first event…</p>;
  const voters = state.replicas.filter((each) => each.voter);
  return (
    <>
      <p>
        {state.leader_id === null ? <Status tone="bad">no leader known</Status> : <Status tone="good">node {state.leader_id} leads</Status>}{" "}
        in epoch {number(state.leader_epoch)}
      </p>
      <p>{plural(voters.length, "voter")}; log at offset <span data-live="high-watermark">{number(state.high_watermark)}</span></p>
      <p><a href="#/quorum">Progress of the log</a></p>
    </>
  );
}

function NodesCard({ state }: { state: LiveState | null }) {
  const tones: Record<string, Tone> = { live: "good", fenced: "bad", stopped: "idle" };
  return (
    <ul className="plain">
      {(state?.nodes ?? []).map((each) => (
        <li key={each.node_id}>
          <Status tone={tones[each.liveness] ?? "warn"}>node {each.node_id}: {each.liveness}{each.node_id === state?.node_id ? ", asked" : ""}</Status>
        </li>
      ))}
    </ul>
  );
}

function LagOverTime() {
  const points = useLagHistory();
  const sizes = useMemo(() => points.map((each) => ({ at_s: each.at_s, value: each.size_bytes })), [points]);
  if (points.length === 0) return null;
  const [first, last] = [points[0], points.at(-1)!];
  const grown = last.size_bytes - first.size_bytes;
  const trend = grown === 0 ? "as much as then" : `${bytes(Math.abs(grown))} ${grown > 0 ? "more" : "less"} than then`;
  return (
    <>
      <h2>Uncopied since the page was opened</h2>
      <p>{bytes(last.size_bytes)} now, {trend}, {time(first.at_s * 1000)}.</p>
      <Suspense fallback={<div className="chart" />}><Line points={sizes} name="Sealed bytes that are not copied yet" told={bytes} /></Suspense>
    </>
  );
}

const WORST = [
  { name: "Partition", cell: (row: Lagging) => <PartitionLink of={row} /> },
  { name: "Node", cell: (row: Lagging) => row.node },
  { name: "Oldest", cell: (row: Lagging) => age(row.lag.age_ms), numeric: true },
  { name: "Uncopied", cell: (row: Lagging) => bytes(row.lag.size_bytes), numeric: true },
  { name: "Gone offsets", cell: (row: Lagging) => (row.gone_offsets > 0 ? <Status tone="bad">{number(row.gone_offsets)}</Status> : "0"), numeric: true },
  { name: "Why", cell: (row: Lagging) => (row.blocked !== null ? <Status tone="bad">blocked: {row.blocked}</Status> : row.why_not_text || "copying") },
];

const RUNNING = [
  { name: "Work", cell: (row: Running) => (row.kind === "copy" ? "copy" : "deletion") },
  { name: "Partition", cell: (row: Running) => <PartitionLink of={row} /> },
  { name: "Node", cell: (row: Running) => row.node },
  {
    name: "Progress",
    cell: (row: Running) =>
      row.kind === "copy" ? <progress aria-label={`copy of ${row.topic}-${row.partition}`} value={row.bytes_done ?? 0} max={row.bytes_total ?? 1} /> : `may end ${time(row.due_ms)}`,
  },
  { name: "Why", cell: (row: Running) => row.why ?? "" },
];

export function Overview() {
  const { state } = useLive();
  const lag = useAnswer<WholeLag>(LAG_ADDRESS);
  const problems = useAnswer<WholeProblems>("/v1/cluster/problems");
  const running = useAnswer<WholeRunning>("/v1/cluster/running?limit=20");
  useEffect(() => void (lag.data && noteLag(lag.data)), [lag.data]);
  return (
    <>
      <h1>Overview</h1>
      <Loaded answer={lag}>
        {(data) => {
          const verdict = verdictOf(data, problems, state);
          return (
            <section className={`verdict ${verdict.tone}`} aria-labelledby="verdict">
              <h2 id="verdict"><Status tone={verdict.tone}>{verdict.text}</Status></h2>
              <ul>{verdict.why.map((each) => <li key={each}>{each}</li>)}</ul>
            </section>
          );
        }}
      </Loaded>
      <div className="cards">
        <Card title="Oldest uncopied byte">
          {lag.data && (
            <>
              <p className="big">{lag.data.total.segments === 0 ? "none" : age(lag.data.total.age_ms)}</p>
              <p>{bytes(lag.data.total.size_bytes)} in {plural(lag.data.total.segments, "sealed segment")}, {plural(lag.data.total.behind, "partition")} of {number(lag.data.total.partitions)} behind</p>
            </>
          )}
        </Card>
        <Card title="Quorum"><QuorumCard state={state} /></Card>
        <Card title="Nodes"><NodesCard state={state} /></Card>
        <Card title="Tier">
          <p className="big">{bytes(state?.totals.size_bytes)}</p>
          <p>{number(state?.totals.copy_segment_finished)} segments of {number(state?.totals.partitions)} partitions</p>
        </Card>
        <Card title="Trash and cost">
          <p>{running.data ? plural(running.data.total.deletions, "deletion") : "–"} under way, {number(state?.totals.delete_segment_started)} segments marked</p>
          <p><a href="#/trash">What is in the trash</a></p>
          <Cost tiered={state?.totals.size_bytes ?? 0} />
        </Card>
      </div>
      {lag.data && <Silent nodes={lag.data.nodes} />}
      <h2>Blocked or furthest behind</h2>
      {lag.data && <Table caption="The ten most urgent partitions" columns={WORST} rows={lag.data.worst} rowKey={(row) => `${row.topic_id}-${row.partition}-${row.node}`} empty="No partition is behind." />}
      <h2>Problems</h2>
      <Trouble problem={problems.problem} />
      {problems.data && (
        <Table
          caption="Problems of the nodes"
          columns={[
            { name: "Nodes", cell: (row) => row.nodes.join(", ") },
            { name: "Area", cell: (row) => <Status tone="warn">{row.about}</Status> },
            { name: "Name", cell: (row) => row.name ?? "" },
            { name: "What and what to do", cell: (row) => row.text },
          ]}
          rows={together(problems.data)}
          rowKey={(row) => `${row.about}-${row.name}-${row.text}`}
          empty="No node tells of one."
        />
      )}
      {problems.data && problems.data.log_dir_problem_count > 0 && (
        <details>
          <summary>{plural(problems.data.log_dir_problem_count, "problem")} in log directories</summary>
          <ul>{problems.data.log_dir_problems.map((each) => <li key={`${each.node}${each.path}`}>node {each.node}: {each.path}: {each.text}</li>)}</ul>
        </details>
      )}
      <LagOverTime />
      <h2>Under way</h2>
      {running.data && <Table caption="Copies and deletions under way, the first twenty" columns={RUNNING} rows={running.data.running} rowKey={(row) => `${row.kind}${row.segment_id}`} empty="Nothing is being copied or deleted." />}
    </>
  );
}
