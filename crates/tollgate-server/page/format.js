// Formats numbers and times.

const GROUPED = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The offset of the server's clock to ours, in ms. */
let ahead = 0;
export const setServerTime = (text) => {
  const time = Date.parse(text);
  if (Number.isFinite(time)) ahead = time - Date.now();
};
export const serverNow = () => Date.now() + ahead;

/** 1,234; 123.5K above a hundred thousand. */
export const count = (n) => (n === null || n === undefined ? "–" : n >= 100_000 ? SHORT.format(n) : GROUPED.format(n));

/** Per second: one digit below ten. */
export const rate = (n) => (n > 0 && n < 10 ? n.toFixed(1) : count(Math.round(n)));

/** 0.042 → 4.2 %. Never rounds to 0 % or to 100 %. */
export function share(x) {
  if (!Number.isFinite(x) || x <= 0) return "0 %";
  if (x >= 1) return "100 %";
  const percent = x * 100;
  if (percent < 0.1) return "< 0.1 %";
  if (percent > 99.9) return "> 99.9 %";
  return `${percent < 10 || percent > 99 ? percent.toFixed(1) : Math.round(percent)} %`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/**
 * Milliseconds in words: at most two units, rounded up to what is shown, days and hours beyond an hour. The one function
 * for this on the page; the server's sentences have the same (`Span::human`).
 */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1) return "0 s";
  const up = (step) => Math.ceil(ms / step) * step;
  const two = (all, [large, word], [small, rest]) => {
    const more = Math.floor((all % large) / small);
    return `${Math.floor(all / large)} ${word}${more > 0 ? ` ${more} ${rest}` : ""}`;
  };
  const [second, minute, hour, day] = [1000, 60_000, 3_600_000, 86_400_000];
  if (up(1) < second) return `${up(1)} ms`;
  if (up(100) < minute) return `${up(100) / second} s`;
  if (up(second) < hour) return two(up(second), [minute, "min"], [second, "s"]);
  if (up(minute) < day) return two(up(minute), [hour, "h"], [minute, "min"]);
  return two(up(hour), [day, "d"], [hour, "h"]);
}

export const micros = (us) =>
  us === null || us === undefined ? "–" : us < 1000 ? `${us} µs` : `${(us / 1000).toFixed(us < 10_000 ? 1 : 0)} ms`;

/** How long ago, by the server's clock. */
export const ago = (text) => {
  const ms = serverNow() - Date.parse(text);
  return !Number.isFinite(ms) ? "–" : ms < 1500 ? "just now" : `${duration(Math.floor(ms / 1000) * 1000)} ago`;
};

/** 02:41:07; with the day when it is not today. */
export function clock(time) {
  const at = new Date(time);
  if (!Number.isFinite(at.getTime())) return "–";
  const today = new Date(serverNow()).toDateString() === at.toDateString();
  return today ? CLOCK.format(at) : `${DAY.format(at)} ${CLOCK.format(at)}`;
}

/** 17 Nov */
export const day = (time) => DAY.format(new Date(time));

export const sum = (list) => list.reduce((all, it) => all + it, 0);
