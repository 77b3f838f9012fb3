// What the node says of itself, live, and the answers that views ask for anew when it changed.
import { createContext, useCallback, useContext, useEffect, useRef, useState, type ReactNode } from "react";
import { ask, follow, ProblemError, type Problem } from "./ask";
import type { Caller, LiveState } from "./answers";

const AGAIN_MS = 2_000;
const REFRESH_MIN_MS = 2_000; // a view is asked for again at most so often,
const REFRESH_MAX_MS = 15_000; // and at least so often while the page can be seen

interface Live {
  state: LiveState | null;
  connected: boolean;
  caller: Caller | null;
  refused: Problem | null;
  session: number; // another one with each token
  signedIn: () => void;
}

const LiveContext = createContext<Live>({ state: null, connected: false, caller: null, refused: null, session: 0, signedIn: () => {} });

export const useLive = (): Live => useContext(LiveContext);

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()));
  });
}

export function LiveProvider({ children }: { children: ReactNode }) {
  const [state, setState] = useState<LiveState | null>(null);
  const [connected, setConnected] = useState(false);
  const [caller, setCaller] = useState<Caller | null>(null);
  const [refused, setRefused] = useState<Problem | null>(null);
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const run = async () => {
      while (!stop.signal.aborted) {
        try {
          setCaller(await ask<Caller>("/v1/caller", { signal: stop.signal }));
          setRefused(null);
          await follow("/v1/events", (data) => (setState(data as LiveState), setConnected(true)), stop.signal);
        } catch (error) {
          if (stop.signal.aborted) return;
          setConnected(false);
          if (error instanceof ProblemError && [401, 403].includes(error.problem.status)) {
            setRefused(error.problem);
            return; // until there is another token
          }
        }
        await pause(AGAIN_MS, stop.signal);
      }
    };
    void run();
    return () => stop.abort();
  }, [round]);
  const signedIn = useCallback(() => (setCaller(null), setRefused(null), setRound((n) => n + 1)), []);
  return <LiveContext value={{ state, connected, caller, refused, session: round, signedIn }}>{children}</LiveContext>;
}

export interface Answer<T> {
  data: T | null;
  problem: Problem | null;
  again: () => void;
}

// The answer of GET `address`, asked for again as the node's metadata change; null: ask nothing.
export function useAnswer<T>(address: string | null, follows = true): Answer<T> {
  const { state, session } = useLive();
  const [shown, setShown] = useState<{ address: string; data: T | null; problem: Problem | null } | null>(null);
  const [round, setRound] = useState(0);
  const askedAt = useRef(0);
  const again = useCallback(() => setRound((n) => n + 1), []);
  const offset = follows ? state?.applied_offset : undefined;
  const offsetBefore = useRef<number | undefined>(undefined);
  useEffect(() => {
    const isFirst = offsetBefore.current === undefined; // what was asked for just now is no older
    offsetBefore.current = offset;
    const wait = Math.max(0, askedAt.current + REFRESH_MIN_MS - performance.now());
    if (askedAt.current === 0 || offset === undefined || isFirst) return;
    const timer = setTimeout(again, wait);
    return () => clearTimeout(timer);
  }, [offset, again]);
  useEffect(() => {
    if (!follows) return;
    const timer = setInterval(() => document.visibilityState === "visible" && again(), REFRESH_MAX_MS);
    return () => clearInterval(timer);
  }, [again, follows]);
  useEffect(() => {
    if (address === null) return;
    const stop = new AbortController();
    askedAt.current = performance.now();
    ask<T>(address, { signal: stop.signal }).then(
      (data) => setShown({ address, data, problem: null }),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        if (error instanceof ProblemError && error.problem.status === 401) return; // a token is asked for already
        const problem = error instanceof ProblemError ? error.problem : { status: 0, kind: "unreachable", detail: "the node does not answer" };
        setShown((before) => ({ address, data: before?.address === address ? before.data : null, problem }));
      },
    );
    return () => stop.abort();
  }, [address, session, round]);
  const current = shown?.address === address ? shown : null;
  return { data: current?.data ?? null, problem: current?.problem ?? null, again };
}
