// The frame of all views.
import { Component, lazy, Suspense, useEffect, useRef, type ReactNode } from "react";
import { useLagSamples } from "./lag_history";
import { LiveProvider, useLive } from "./live";
import { Overview } from "./overview";
import { Status, Trouble } from "./parts";
import { usePlace, type Place } from "./router";
import { Who } from "./sign_in";

// The overview comes first and alone: each other view is loaded when it is looked at.
const ClusterActions = lazy(() => import("./cluster_actions").then((all) => ({ default: all.ClusterActions })));
const Audit = lazy(() => import("./audit").then((all) => ({ default: all.Audit })));
const Partition = lazy(() => import("./partition").then((all) => ({ default: all.Partition })));
const Partitions = lazy(() => import("./partitions").then((all) => ({ default: all.Partitions })));
const Quorum = lazy(() => import("./quorum").then((all) => ({ default: all.Quorum })));
const SegmentView = lazy(() => import("./segment").then((all) => ({ default: all.SegmentView })));
const TrashView = lazy(() => import("./trash").then((all) => ({ default: all.TrashView })));

const VIEWS: { way: string; name: string }[] = [
  { way: "", name: "Overview" },
  { way: "partitions", name: "Partitions" },
  { way: "trash", name: "Trash" },
  { way: "quorum", name: "Quorum" },
  { way: "audit", name: "Audit" },
  { way: "actions", name: "Actions" },
];

function view({ parts, query }: Place): ReactNode {
  const [kind, topic, partition, segment] = parts;
  const key = parts.join("/"); // another thing of the same kind is another view
  const topicId = query.get("topic_id");
  switch (kind) {
    case undefined:
      return <Overview />;
    case "partitions":
      return topic === undefined ? <Partitions /> : <Partition key={key} topic={topic} partition={Number(partition)} topicId={topicId} />;
    case "segments":
      return <SegmentView key={key} topic={topic} partition={Number(partition)} segment={segment} topicId={topicId} />;
    case "trash":
      return <TrashView />;
    case "quorum":
      return <Quorum />;
    case "actions":
      return <ClusterActions />;
    case "audit":
      return <Audit />;
    default:
      return <h1>There is no such view</h1>;
  }
}

// A view's file that does not come, as after the node's upgrade, is told; all else stays.
class Loading extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };
  static getDerivedStateFromError = () => ({ failed: true });
  override render() {
    return this.state.failed ? <Trouble problem={{ status: 0, kind: "unreachable", detail: "this view could not be shown: load the page again" }} /> : this.props.children;
  }
}

function Connection() {
  const { connected, state } = useLive();
  return (
    <span role="status">
      {connected ? <Status tone="good">live from node {state?.node_id}</Status> : <Status tone="warn">not connected</Status>}
    </span>
  );
}

function Frame() {
  const place = usePlace();
  const here = place.parts[0] ?? "";
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  const way = place.parts.join("/");
  useLagSamples();
  useEffect(() => {
    document.title = `${VIEWS.find((each) => each.way === here)?.name ?? "Strandline"} · Strandline`;
    if (first.current) first.current = false;
    else main.current?.focus(); // keyboards and screen readers go on in the view that was chosen
  }, [way, here]);
  return (
    <>
      <a className="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>Skip to the content</a>
      <header className="container-fluid">
        <strong>Strandline</strong>
        <nav aria-label="Views">
          <ul>
            {VIEWS.map((each) => (
              <li key={each.way}>
                <a href={`#/${each.way}`} aria-current={here === each.way ? "page" : undefined}>{each.name}</a>
              </li>
            ))}
          </ul>
        </nav>
        <Connection />
        <Who />
      </header>
      <main ref={main} id="main" tabIndex={-1} className="container-fluid">
        <Loading key={way}>
          <Suspense fallback={<p aria-busy="true">Loading the view…</p>}>{view(place)}</Suspense>
        </Loading>
      </main>
    </>
  );
}

export function App() {
  return (
    <LiveProvider>
      <Frame />
    </LiveProvider>
  );
}
