// Numbers, sizes, ages and times as people read them.
const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const number = (value: number | null | undefined): string => (value === null || value === undefined ? "–" : NUMBER.format(value));

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < UNITS.length - 1) (size /= 1024), unit++;
  return `${unit === 0 ? size : size.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

export function age(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  const s = ms / 1000;
  if (s < 1) return "0 s";
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7_200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3_600)} h`;
  if (s < 63_072_000) return `${Math.round(s / 86_400)} days`;
  return `${(s / 31_536_000).toFixed(1)} years`;
}

const DATE_MS_MAX = 8.64e15; // JavaScript has no date beyond; a record's time is its producer's word

export function time(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || ms < 0) return "–";
  return ms > DATE_MS_MAX ? `${number(ms)} ms` : new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${number(count)} ${count === 1 ? one : many}`;
