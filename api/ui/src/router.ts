// Places within the page, after the `#`, which no browser sends to anybody.
import { useEffect, useState } from "react";

export interface Place {
  parts: string[];
  query: URLSearchParams;
}

export function placeOf(hash: string): Place {
  const [way = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { parts: way.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

export function usePlace(): Place {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const moved = () => setHash(location.hash);
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return placeOf(hash);
}
