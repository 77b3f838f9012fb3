// How far copying was behind since the page was opened: each answer about it, and where no view asks, one now and then.
import { useEffect, useSyncExternalStore } from "react";
import type { WholeLag } from "./answers";
import { ask } from "./ask";

export const LAG_ADDRESS = "/v1/cluster/lag?limit=1";
const EVERY_MS = 15_000;
const POINTS_MAX = 2_000; // beyond that every other one goes: the time shown grows, its detail falls

export interface LagPoint {
  at_s: number;
  size_bytes: number;
  age_s: number;
}

let points: LagPoint[] = [];
let apart_s = 1; // the least time between two points
const watching = new Set<() => void>();

export function noteLag({ nodes, total }: WholeLag): void {
  const at_s = Date.now() / 1000;
  if (!nodes.every((each) => each.answered)) return; // the sum would fall with a node's silence
  if (points.length > 0 && at_s - points.at(-1)!.at_s < apart_s) return;
  points = [...points, { at_s, size_bytes: total.size_bytes, age_s: total.segments === 0 ? 0 : total.age_ms / 1000 }];
  if (points.length > POINTS_MAX) {
    points = points.filter((_, index) => index % 2 === 0);
    apart_s = Math.max(apart_s, ((points.at(-1)!.at_s - points[0].at_s) / POINTS_MAX) * 2);
  }
  watching.forEach((each) => each());
}

export function useLagHistory(): LagPoint[] {
  return useSyncExternalStore(
    (changed) => (watching.add(changed), () => watching.delete(changed)),
    () => points,
  );
}

// For the whole page: goes on while other views are shown.
export function useLagSamples(): void {
  useEffect(() => {
    const sample = async () => {
      const last = points.at(-1)?.at_s ?? 0;
      if (document.visibilityState !== "visible" || Date.now() - last * 1000 < EVERY_MS) return;
      try {
        noteLag(await ask<WholeLag>(LAG_ADDRESS));
      } catch {
        // the view that is shown tells it; the line has a gap
      }
    };
    const timer = setInterval(() => void sample(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
}
