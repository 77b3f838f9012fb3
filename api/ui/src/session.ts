// The token of this tab. sessionStorage ends with the tab, or comes back with it where the browser restores that;
// nothing here ever puts it into an address.
const KEY = "strandline.token";

export function token(): string | null {
  return sessionStorage.getItem(KEY);
}

export function keepToken(value: string | null): void {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}
