// An action: what it would do first (a dry run), then the word that confirms it, then it is done.
import { lazy, Suspense, useId, useState } from "react";
import type { Caller } from "./answers";
import { ProblemError, type Problem } from "./ask";
import { isForetold, type Change, type Foretold } from "./foretell";
import { useLive } from "./live";
import { Status, Table, Trouble } from "./parts";

const Dialog = lazy(() => import("./dialog"));

const RANKS = { read: 1, operate: 2, admin: 3 };
const LINES_MAX = 12;

export type Values = Record<string, string>;

export interface Field {
  name: string;
  label: string;
  choices?: string[];
  value?: string;
  optional?: boolean;
}

export interface Action {
  name: string;
  explains: string;
  role: "operate" | "admin";
  notHere?: string | null; // why this node can't do it, whatever the role
  fields: Field[];
  // Changes nothing: tells what `run` would do, as the node's own answer or as `Foretold`.
  dry: (values: Values) => Promise<unknown>;
  word: (values: Values) => string;
  run: (values: Values, looked: Foretold) => Promise<unknown>;
}

// Why nothing at all can be done.
function whyNothing(caller: Caller | null): string | null {
  if (caller === null) return "the node has not said yet who you are";
  return caller.token ? null : "a page without a token only reads: use a token above";
}

function whyNot(action: Action, caller: Caller | null): string | null {
  if (caller === null || !caller.token) return null; // said once for all
  if (RANKS[caller.role] < RANKS[action.role]) return `needs the role ${action.role}, and ${caller.name} has ${caller.role}`;
  return action.notHere ?? null;
}

function Told({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <>–</>;
  if (Array.isArray(value)) {
    if (value.length === 0) return <>none</>;
    return (
      <ul>
        {value.slice(0, LINES_MAX).map((each, index) => <li key={index}><Told value={each} /></li>)}
        {value.length > LINES_MAX && <li>and {value.length - LINES_MAX} more</li>}
      </ul>
    );
  }
  if (typeof value === "object") {
    return (
      <dl className="facts">
        {Object.entries(value).map(([name, each]) => (
          <div key={name}>
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd><Told value={each} /></dd>
          </div>
        ))}
      </dl>
    );
  }
  return <>{String(value)}</>;
}

const CHANGES = [
  { name: "What", cell: (row: Change) => row.what },
  { name: "Now", cell: (row: Change) => row.now },
  { name: "Would become", cell: (row: Change) => row.then },
];

function WouldBe({ of }: { of: unknown }) {
  if (!isForetold(of)) return <Told value={of} />;
  return (
    <>
      {of.refused && <p><Status tone="bad">The node would refuse it:</Status> {of.refused}.</p>}
      {!of.refused && <Table caption="What would change" columns={CHANGES} rows={of.changes} rowKey={(row, index) => `${row.what}${index}`} empty="Nothing would change." />}
      {of.notes?.map((each, index) => <p key={index}>{each}</p>)}
      {of.answer ? <Told value={of.answer} /> : null}
    </>
  );
}

function Steps({ action, close }: { action: Action; close: () => void }) {
  const [values, setValues] = useState<Values>(Object.fromEntries(action.fields.map((each) => [each.name, each.value ?? each.choices?.[0] ?? ""])));
  const [looked, setLooked] = useState<{ of: string; answer: unknown } | null>(null);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isStale, setStale] = useState(false);
  const [done, setDone] = useState<{ answer: unknown } | null>(null);
  const now = JSON.stringify(values);
  const isLooked = looked?.of === now; // other values need a dry run of their own
  const isRefused = isForetold(looked?.answer) && Boolean(looked.answer.refused);
  const word = action.word(values);
  const whole = action.fields.every((each) => each.optional || values[each.name] !== "");
  const attempt = async (what: () => Promise<void>) => {
    setBusy(true);
    setProblem(null);
    setStale(false);
    try {
      await what();
    } catch (error) {
      const lost = error instanceof TypeError || error instanceof DOMException;
      const detail = lost ? "no answer came: look at the present state before you try again" : String(error);
      setProblem(error instanceof ProblemError ? error.problem : { status: 0, kind: "unknown", detail });
    }
    setBusy(false);
  };
  // What failed may have changed something, or something else has: the dry run is out of date.
  const act = async (foretold: Foretold) => {
    try {
      setDone({ answer: await action.run(values, foretold) });
    } catch (error) {
      setLooked(null);
      setStale(true);
      setTyped("");
      throw error;
    }
  };
  if (done !== null) {
    return (
      <>
        <p role="status"><Status tone="good">Done.</Status></p>
        <Told value={done.answer} />
        <button type="button" onClick={close}>Close</button>
      </>
    );
  }
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!isLooked) void attempt(async () => setLooked({ of: now, answer: await action.dry(values) }));
        else if (typed === word && !isRefused) void attempt(() => act(isForetold(looked.answer) ? looked.answer : { changes: [] }));
      }}
    >
      {action.fields.map((each) => (
        <label key={each.name}>
          {each.label}
          {each.choices ? (
            <select value={values[each.name]} onChange={(event) => setValues({ ...values, [each.name]: event.target.value })}>
              {each.choices.map((choice) => <option key={choice}>{choice}</option>)}
            </select>
          ) : (
            <input value={values[each.name]} onChange={(event) => setValues({ ...values, [each.name]: event.target.value })} />
          )}
        </label>
      ))}
      <Trouble problem={problem} />
      {isStale && <p>What it would do may be another thing by now: look again, then decide.</p>}
      {!isLooked ? (
        <button type="submit" disabled={!whole || busy} aria-busy={busy}>{busy ? "Looking…" : "Show what it would do"}</button>
      ) : (
        <>
          <section aria-label="What it would do" className="told" tabIndex={0}><WouldBe of={looked.answer} /></section>
          {!isRefused && (
            <>
              <label>
                Type <code>{word}</code> to confirm
                <input value={typed} autoComplete="off" autoCapitalize="none" spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
              </label>
              <button type="submit" disabled={typed !== word || busy} aria-busy={busy}>Do it</button>
            </>
          )}
        </>
      )}
      <button type="button" className="secondary" onClick={close}>Leave it</button>
    </form>
  );
}

function ActionButton({ action, nothing }: { action: Action; nothing: string | null }) {
  const { caller } = useLive();
  const [open, setOpen] = useState(false);
  const why = useId();
  const reason = whyNot(action, caller);
  return (
    <li>
      <button
        type="button"
        className="small"
        aria-disabled={reason !== null || nothing !== null}
        aria-describedby={nothing === null ? why : `${why} ${nothing}`}
        onClick={() => reason === null && nothing === null && setOpen(true)}
      >
        {action.name}
      </button>
      <span id={why}>{action.explains}{reason !== null && <em> Not now: {reason}.</em>}</span>
      {open && (
        <Suspense>
          <Dialog title={action.name} close={() => setOpen(false)}>
            <p>{action.explains}</p>
            <Steps action={action} close={() => setOpen(false)} />
          </Dialog>
        </Suspense>
      )}
    </li>
  );
}

export function Actions({ actions, name }: { actions: Action[]; name: string }) {
  const { caller } = useLive();
  const id = useId();
  const nothing = whyNothing(caller);
  return (
    <>
      {nothing !== null && <p id={id}><em>Not now: {nothing}.</em></p>}
      <ul className="actions" aria-label={name}>
        {actions.map((each) => <ActionButton key={each.name} action={each} nothing={nothing === null ? null : id} />)}
      </ul>
    </>
  );
}
