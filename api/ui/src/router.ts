// Places within the page, after the `#`, which no browser sends to anybody.
import { useEffect, useState } from "react";

export interface Place {
  parts: string[];
  query: URLSearchParams;
}

// The part as it stands where it is nothing that was encoded: a link may be cut off, or typed.
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function placeOf(hash: string): Place {
  const [way = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { parts: way.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
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
