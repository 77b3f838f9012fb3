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

export interface PartitionRow extends PartitionName {
  node: number;
  role: string;
  mode: string;
  leader_epoch: number | null;
  claimed_by_node: number | null;
  log_start_offset: number | null;
  local_log_start_offset: number | null;
  next_offset: number | null;
  high_watermark: number | null;
  lag: Lag | null;
  gone_offsets: number;
  lost_offsets: number;
  local_bytes: number | null;
  remote_segments: number;
  remote_bytes: number;
  why_not_copying: string | null;
  why_not_text: string;
  blocked: string | null;
}

export interface WholePartitions {
  nodes: NodePart[];
  partitions: PartitionRow[];
  next_cursor: string | null;
}

export interface StripPiece {
  start_offset: number;
  end_offset: number;
  segment_id: string;
  size_bytes: number;
  max_timestamp_ms: number;
}

export interface Strip extends PartitionName {
  first_offset: number;
  last_offset: number;
  whole: boolean;
  pieces: StripPiece[];
  lost_ranges: { start_offset: number; end_offset: number; why: string }[];
}

export interface Segment extends PartitionName {
  segment_id: string;
  state: string;
  start_offset: number;
  end_offset: number;
  leader_epochs: { epoch: number; start_offset: number }[];
  size_bytes: number;
  max_timestamp_ms: number;
  broker_id: number;
  txn_index_empty: boolean;
  objects: { store: string; log_bytes: number; log_crc32c: string; indexes_bytes: number; indexes_crc32c: string; manifest_bytes: number; manifest_crc32c: string } | null;
  last_scrubbed_ms: number | null;
  damage: { object: string; what: string; action: string }[];
}

export interface SegmentHistory {
  changes: { metadata_offset: number; timestamp_ms: number; record: string; state: string; broker_id: number }[];
}

export interface RetentionPlan {
  new_log_start_offset: number | null;
  new_readable_offset: number | null;
  segments: { segment_id: string; start_offset: number; end_offset: number; size_bytes: number; max_timestamp_ms: number; why: string }[];
  segment_count: number;
  trashed_count: number;
  expiring_bytes: number;
  tiered_bytes: number;
  next_due_ms: number | null;
  held_back: string | null;
  brake: string | null;
  hold: string | null;
  accepted: string | null;
  summary: string;
  retention_ms: number | null;
  retention_bytes: number | null;
  retention_of: string;
}

export interface AuditLine {
  node: number;
  at_ms: number;
  action: string;
  topic: string | null;
  partition: number | null;
  segment_id: string | null;
  size_bytes: number | null;
  why: string;
  by: string;
}

export interface WholeAudit {
  nodes: NodePart[];
  lines: AuditLine[];
  unreadable: number;
  next_cursor: string | null;
}

export interface ClusterNodes {
  nodes: { node_id: number; liveness: string; liveness_since_ms: number; quorum_role: string; release: string | null; feature_levels: string | null; http: string | null; log_dirs: number | null; contested: boolean }[];
}
