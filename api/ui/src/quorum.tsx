// The metadata quorum: who leads, who follows how closely, and how the log moves.
import { lazy, Suspense, useEffect, useState } from "react";
import type { ClusterNodes } from "./answers";
import type { Point } from "./chart";
import { LEADERS_WORD, type QuorumAnswer } from "./foretell";
import { number, time } from "./format";
import { useAnswer, useLive } from "./live";
import { Facts, Loaded, Status, Table, type Tone } from "./parts";

const Line = lazy(() => import("./chart"));
const POINTS_MAX = 600;
const TONES: Record<string, Tone> = { live: "good", fenced: "bad", stopped: "idle" };

function usePoints(value: number | undefined): Point[] {
  const [points, setPoints] = useState<Point[]>([]);
  useEffect(() => {
    if (value === undefined) return;
    const note = () => setPoints((before) => [...before.slice(1 - POINTS_MAX), { at_s: Date.now() / 1000, value }]);
    note();
    const timer = setInterval(note, 1_000); // a log that stands still is a flat line, and no gap
    return () => clearInterval(timer);
  }, [value]);
  return points;
}

export function Quorum() {
  const { state } = useLive();
  const nodes = useAnswer<ClusterNodes>("/v1/nodes");
  const points = usePoints(state?.high_watermark);
  const led = useAnswer<QuorumAnswer>(state !== null && state.state !== "leader" && state.leader_id !== null ? LEADERS_WORD : null);
  const replicas = led.data === null ? state?.replicas ?? [] : [...led.data.voters.map((each) => ({ ...each, voter: true })), ...led.data.observers.map((each) => ({ ...each, voter: false }))];
  return (
    <>
      <h1>Quorum</h1>
      {state === null ? (
        <p aria-busy="true">Waiting for the first event…</p>
      ) : (
        <>
          <Facts
            facts={[
              ["Leader", state.leader_id === null ? <Status tone="bad">none that this node knows of</Status> : <Status tone="good">node {state.leader_id}</Status>],
              ["Epoch", number(state.leader_epoch)],
              ["Node asked", `${state.node_id}, ${state.state}`],
              ["High watermark", <span data-live="high-watermark">{number(state.high_watermark)}</span>],
              ["Log", `${number(state.log_start_offset)} to ${number(state.log_end_offset)}`],
              ["Applied here", `${number(state.applied_offset)}, ${number(Math.max(0, state.high_watermark - 1 - state.applied_offset))} behind`],
            ]}
          />
          <h2>Progress of the log</h2>
          <Suspense fallback={<div className="chart" />}><Line points={points} name="Committed offsets of the metadata log" /></Suspense>
          <Table
            caption={state.state === "leader" ? "Replicas of the log" : led.data ? `Replicas of the log, by the leader, node ${led.data.leader_id}` : "Replicas of the log; the leader does not answer, and only it knows how far they are"}
            columns={[
              { name: "Node", cell: (each) => each.node_id },
              { name: "Vote", cell: (each) => (each.voter ? "votes" : "observes") },
              { name: "Log end", cell: (each) => number(each.log_end_offset), numeric: true },
              { name: "Lag", cell: (each) => (each.lag === null ? "–" : <Status tone={each.lag > 100 ? "warn" : "good"}>{number(each.lag)}</Status>), numeric: true },
            ]}
            rows={replicas}
            rowKey={(each) => `${each.node_id}-${each.voter}`}
            empty="None."
          />
        </>
      )}
      <h2>Nodes</h2>
      <Loaded answer={nodes}>
        {(data) => (
          <Table
            caption="Nodes that registered"
            columns={[
              { name: "Node", cell: (each) => each.node_id },
              { name: "Liveness", cell: (each) => <Status tone={TONES[each.liveness] ?? "warn"}>{each.liveness}{each.contested ? ", two processes have this id" : ""}</Status> },
              { name: "Since", cell: (each) => time(each.liveness_since_ms) },
              { name: "Role", cell: (each) => each.quorum_role },
              { name: "Release", cell: (each) => each.release ?? "–" },
              { name: "Log directories", cell: (each) => number(each.log_dirs), numeric: true },
            ]}
            rows={data.nodes}
            rowKey={(each) => `${each.node_id}`}
            empty="None."
          />
        )}
      </Loaded>
    </>
  );
}
