// The frame of all views.
import { useEffect, useRef, type ReactNode } from "react";
import { LiveProvider, useLive } from "./live";
import { ClusterActions } from "./actions";
import { Audit } from "./audit";
import { Overview } from "./overview";
import { Partition } from "./partition";
import { Partitions } from "./partitions";
import { Status } from "./parts";
import { Quorum } from "./quorum";
import { usePlace, type Place } from "./router";
import { SegmentView } from "./segment";
import { TrashView } from "./trash";
import { Who } from "./sign_in";

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
      <main ref={main} id="main" tabIndex={-1} className="container-fluid">{view(place)}</main>
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
