// A token for this tab.
import { lazy, Suspense, useState } from "react";
import { useLive } from "./live";
import { Status, Trouble } from "./parts";
import { keepToken, token } from "./session";

const Dialog = lazy(() => import("./dialog"));

export function Who() {
  const { caller, refused, signedIn } = useLive();
  const [asked, setAsked] = useState(false);
  const [typed, setTyped] = useState("");
  const open = asked || refused !== null;
  const take = (value: string | null) => (keepToken(value), setTyped(""), setAsked(false), signedIn());
  return (
    <div className="who">
      {caller && <span>{caller.name}: {caller.role}{caller.token ? "" : ", reads only"}</span>}
      {token() === null ? (
        <button type="button" className="small" onClick={() => setAsked(true)}>Use a token</button>
      ) : (
        <button type="button" className="small" onClick={() => take(null)}>Forget the token</button>
      )}
      {open && (
        <Suspense>
          <Dialog title="Token" close={() => setAsked(false)}>
            <Trouble problem={refused} />
            <form onSubmit={(event) => (event.preventDefault(), take(typed.trim() || null))}>
              <label>
                A token of the node's token file
                <input type="password" autoComplete="off" spellCheck={false} value={typed} onChange={(event) => setTyped(event.target.value)} />
              </label>
              <p><Status tone="idle">It is kept in this tab until it is forgotten or the tab is closed for good, and sent to this node only.</Status></p>
              <button type="submit">Use it</button>
              {refused === null && <button type="button" className="secondary" onClick={() => setAsked(false)}>Cancel</button>}
            </form>
          </Dialog>
        </Suspense>
      )}
    </div>
  );
}
