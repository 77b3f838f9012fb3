// Small parts that every view is made of.
import { Fragment, type ReactNode } from "react";
import type { Problem } from "./ask";
import type { NodePart, PartitionName } from "./answers";
import type { Answer } from "./live";

export type Tone = "good" | "warn" | "bad" | "idle";
const MARKS: Record<Tone, string> = { good: "✔", warn: "▲", bad: "✖", idle: "○" };

// A word with a mark: it can be read without colour.
export function Status({ tone, children }: { tone: Tone; children: ReactNode }) {
  return (
    <span className={`status ${tone}`}>
      <span aria-hidden="true">{MARKS[tone]}</span> {children}
    </span>
  );
}

export function Trouble({ problem }: { problem: Problem | null }) {
  if (problem === null) return null;
  return (
    <p role="alert" className="trouble">
      <Status tone="bad">{problem.status || "no answer"}</Status> {problem.detail}
    </p>
  );
}

export function Loaded<T>({ answer, children }: { answer: Answer<T>; children: (data: T) => ReactNode }) {
  return (
    <>
      <Trouble problem={answer.problem} />
      {answer.data !== null ? children(answer.data) : answer.problem === null && <p aria-busy="true">Asking the node…</p>}
    </>
  );
}

export interface Column<Row> {
  name: string;
  cell: (row: Row) => ReactNode;
  numeric?: boolean;
}

export function Table<Row>({ caption, columns, rows, rowKey, empty }: {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row, index: number) => string;
  empty: string;
}) {
  if (rows.length === 0) return <p className="muted">{empty}</p>;
  return (
    <div className="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption>{caption}</caption>
        <thead>
          <tr>
            {columns.map((each) => (
              <th key={each.name} scope="col" className={each.numeric ? "numeric" : undefined}>{each.name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={rowKey(row, index)}>
              {columns.map((each) => (
                <td key={each.name} data-name={each.name} className={each.numeric ? "numeric" : undefined}>{each.cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Facts({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd>{value ?? "–"}</dd>
        </Fragment>
      ))}
    </dl>
  );
}

export function Card({ title, children }: { title: string; children: ReactNode }) {
  return (
    <article className="card">
      <h3>{title}</h3>
      {children}
    </article>
  );
}

export function Silent({ nodes }: { nodes: NodePart[] }) {
  const silent = nodes.filter((each) => !each.answered);
  return silent.map((each) => (
    <p key={each.node} className="trouble">
      <Status tone="warn">node {each.node} is missing here</Status> {each.reason}: {each.text}
    </p>
  ));
}

export const partitionLink = (of: PartitionName): string => `#/partitions/${encodeURIComponent(of.topic)}/${of.partition}?topic_id=${of.topic_id}`;

export function PartitionLink({ of }: { of: PartitionName }) {
  return <a href={partitionLink(of)}>{of.topic}-{of.partition}</a>;
}
