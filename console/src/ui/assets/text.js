// Times, sizes and numbers as text.

/** Seconds in two units at most: 7s, 2m14s, 3h05m, 2d3h. The same as on the command line. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const all = Math.abs(Math.trunc(seconds));
  const sign = seconds < 0 ? "-" : "";
  const two = (number) => String(number).padStart(2, "0");
  if (all < 60) return `${sign}${all}s`;
  if (all < 3600) return `${sign}${Math.floor(all / 60)}m${two(all % 60)}s`;
  if (all < 86400) return `${sign}${Math.floor(all / 3600)}h${two(Math.floor(all / 60) % 60)}m`;
  return `${sign}${Math.floor(all / 86400)}d${Math.floor(all / 3600) % 24}h`;
}

/** Milliseconds of a time; NaN for one that is none. */
export function millis(time) {
  return time ? Date.parse(time) : NaN;
}

/** Seconds between two times; null where one of them is none. */
export function between(from, to) {
  const seconds = (millis(to) - millis(from)) / 1000;
  return Number.isNaN(seconds) ? null : seconds;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit" });

/** A time of day, by the clock of this machine. */
export function clock(time) {
  const at = millis(time);
  return Number.isNaN(at) ? "" : CLOCK.format(at);
}

/** A time with its day. */
export function day(time) {
  const at = millis(time);
  return Number.isNaN(at) ? "" : DAY.format(at);
}

/** Bytes in the unit that people use for them. */
export function bytes(count) {
  if (count === null || count === undefined) return "";
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = -1;
  do {
    count /= 1024;
    unit += 1;
  } while (count >= 1024 && unit + 1 < units.length);
  return `${count.toFixed(1)} ${units[unit]}`;
}

/** A number with its noun. */
export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
