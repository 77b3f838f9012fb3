// Requests to the node that served this page, and to nobody else.
import { token } from "./session";

export interface Problem {
  status: number;
  kind: string;
  detail: string;
  reason?: string;
  field?: string;
}

export class ProblemError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

const DEADLINE_MS = 35_000;

export function path(address: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${address}?${text}` : address;
}

export function partitionPath(topic: string, partition: number | string, rest = ""): string {
  return `/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}${rest}`;
}

function headers(more: Record<string, string> = {}): Record<string, string> {
  const known = token();
  return known ? { ...more, Authorization: `Bearer ${known}` } : more;
}

async function problemOf(answer: Response): Promise<ProblemError> {
  const text = await answer.text();
  try {
    return new ProblemError({ ...JSON.parse(text), status: answer.status });
  } catch {
    return new ProblemError({ status: answer.status, kind: "internal", detail: `${answer.status}: ${text.slice(0, 200)}` });
  }
}

export async function ask<T>(address: string, options: { method?: string; body?: unknown; signal?: AbortSignal } = {}): Promise<T> {
  const signals = [AbortSignal.timeout(DEADLINE_MS), ...(options.signal ? [options.signal] : [])];
  const body = options.body === undefined ? undefined : JSON.stringify(options.body);
  const answer = await fetch(address, {
    method: options.method ?? "GET",
    headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
    body,
    signal: AbortSignal.any(signals),
    credentials: "omit",
    redirect: "error", // a token goes to this node only
    cache: "no-store",
  });
  if (!answer.ok) throw await problemOf(answer);
  return (await answer.json()) as T;
}

// Server-sent events over fetch: EventSource can send no Authorization header.
export async function follow(address: string, take: (data: unknown) => void, signal: AbortSignal): Promise<void> {
  const answer = await fetch(address, { headers: headers(), signal, credentials: "omit", redirect: "error", cache: "no-store" });
  if (!answer.ok) throw await problemOf(answer);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) take(JSON.parse(data));
    }
  }
}
