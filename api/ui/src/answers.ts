// The fields of the node's answers that this page shows; docs/API.md has their meaning.
export interface Caller {
  name: string;
  role: "read" | "operate" | "admin";
  token: boolean;
}

export interface Totals {
  copy_segment_started: number;
  copy_segment_finished: number;
  delete_segment_started: number;
  partitions: number;
  size_bytes: number;
  [more: string]: number;
}

export interface LiveState {
  node_id: number;
  state: string;
  leader_id: number | null;
  leader_epoch: number;
  high_watermark: number;
  log_start_offset: number;
  log_end_offset: number;
  applied_offset: number;
  replicas: { node_id: number; voter: boolean; log_end_offset: number | null; lag: number | null }[];
  nodes: { node_id: number; liveness: string }[];
  totals: Totals;
  problems: number;
}

export interface NodePart {
  node: number;
  answered: boolean;
  reason: string | null;
  text: string | null;
}

export interface Lag {
  size_bytes: number;
  segments: number;
  age_ms: number;
}

export interface LagSum extends Lag {
  partitions: number;
  behind: number;
  blocked: number;
  gone_offsets: number;
}

export interface PartitionName {
  topic: string;
  topic_id: string;
  partition: number;
}

export interface Lagging extends PartitionName {
  node: number;
  lag: Lag;
  gone_offsets: number;
  why_not_copying: string | null;
  why_not_text: string;
  blocked: string | null;
}

export interface WholeLag {
  nodes: NodePart[];
  total: LagSum;
  worst: Lagging[];
}

export interface WholeProblems {
  nodes: NodePart[];
  problems: { node: number; about: string; name: string | null; text: string }[];
  log_dir_problem_count: number;
  log_dir_problems: { node: number; path: string; kind: string; text: string }[];
}

export interface Running extends PartitionName {
  node: number;
  kind: "copy" | "delete";
  segment_id: string;
  bytes_done: number | null;
  bytes_total: number | null;
  due_ms: number | null;
  why: string | null;
}

export interface WholeRunning {
  total: { copies: number; bytes_done: number; bytes_total: number; deletions: number };
  running: Running[];
  next_cursor: string | null;
}
