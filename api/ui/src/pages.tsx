// Pages of a list: a view holds one page, and the cursors of those before it.
import { useState } from "react";

export interface Pages {
  cursor: string | null;
  number: number;
  next: (cursor: string) => void;
  back: () => void;
  first: () => void;
}

// `of` names the list with its filters: another one begins at its first page.
export function usePages(of: string): Pages {
  const [kept, setKept] = useState<{ of: string; cursors: string[] }>({ of, cursors: [] });
  const cursors = kept.of === of ? kept.cursors : [];
  return {
    cursor: cursors.at(-1) ?? null,
    number: cursors.length + 1,
    next: (cursor) => setKept({ of, cursors: [...cursors, cursor] }),
    back: () => setKept({ of, cursors: cursors.slice(0, -1) }),
    first: () => setKept({ of, cursors: [] }),
  };
}

export function Pager({ pages, next, name }: { pages: Pages; next: string | null; name: string }) {
  if (pages.number === 1 && next === null) return null;
  return (
    <nav aria-label={`Pages of ${name}`} className="pager">
      <button type="button" className="small" disabled={pages.number === 1} onClick={pages.first}>First</button>
      <button type="button" className="small" disabled={pages.number === 1} onClick={pages.back}>Back</button>
      <span>page {pages.number}</span>
      <button type="button" className="small" disabled={next === null} onClick={() => next !== null && pages.next(next)}>Next</button>
    </nav>
  );
}
