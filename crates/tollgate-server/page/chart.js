// Charts: traffic per second or over days with a readout, and sparklines in rows.

import { h, s, say } from "./dom.js";
import { clock, count, day, duration, plural, share } from "./format.js";

const LEAST_HEIGHT = 200;
const ROOM = { left: 4, right: 54, top: 10, bottom: 24 };

/** A round number at or above `most`, and the number of grid lines below it. */
export function scale(most) {
  if (most <= 4) return [4, 4];
  const power = 10 ** Math.floor(Math.log10(most));
  const [top, lines] = [
    [1, 2],
    [1.5, 3],
    [2, 4],
    [3, 3],
    [4, 4],
    [5, 5],
    [6, 3],
    [8, 4],
    [10, 5],
  ].find(([it]) => it * power >= most);
  return [top * power, lines];
}

/** A step for each value, from `below` up: an area without interpolated slopes. */
function area(x, y, below, above) {
  let path = `M${x(0)} ${y(above[0])}`;
  for (let i = 0; i < above.length; i += 1) path += `V${y(above[i])}H${x(i + 1)}`;
  for (let i = below.length - 1; i >= 0; i -= 1) path += `V${y(below[i])}H${x(i)}`;
  return `${path}Z`;
}

/** The distances of labels on the time axis, in seconds. */
const TICKS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];
const HOUR = 3600;
const DAY = 86_400;
/** The least distance of two labels, in pixels. */
const TICK_ROOM = 72;

/** Seconds by which local time is ahead of UTC, so that labels are at round local times. */
const zoneOffset = (second) => -new Date(second * 1000).getTimezoneOffset() * 60;

const KINDS = [
  ["allowed", "allowed"],
  ["refused", "refused"],
  ["shadow_limited", "shadow"],
  ["degraded", "without the store"],
];

/**
 * Traffic and refusals. Call `draw(series)` with every response; hover or arrow keys read one step. `step_s` of a series
 * is the length of a step, `until` the second in its last step.
 */
export function trafficChart(parent) {
  const svg = s("svg", { class: "traffic", "aria-hidden": "true" });
  const grid = s("g", { class: "grid" });
  const shapes = Object.fromEntries(
    ["degraded", "allowed", "refused", "shadow"].map((it) => [it, s("path", { class: `is-${it}` })]),
  );
  const cursor = s("line", { class: "cursor" });
  svg.append(grid, ...Object.values(shapes), cursor);
  const readout = h("p", { class: "readout" });
  const legend = h(
    "ul",
    { class: "legend" },
    KINDS.map(([, word]) => h("li", { class: `is-${word.split(" ")[0]}` }, word)),
  );
  const box = h(
    "div",
    {
      class: "chart-box",
      tabindex: "0",
      role: "slider",
      "aria-label": "Traffic of the last five minutes, second by second",
      "aria-orientation": "horizontal",
      "aria-valuemin": "0",
      "aria-valuemax": "299",
    },
    svg,
  );
  parent.append(box, h("div", { class: "under-chart" }, readout, legend));

  let series = null;
  let width = 0;
  let height = LEAST_HEIGHT;
  // Counted from the newest second, so that the selection stays while time moves on; null: no
  // selection.
  let back = null;

  const length = () => series?.allowed.length ?? 0;
  const step = () => series?.step_s || 1;
  /** The first second of a step. */
  const second = (at) => (series.from ?? series.until - (length() - 1) * step()) + at * step();
  const inner = () => Math.max(1, width - ROOM.left - ROOM.right);

  function words(at) {
    const [allowed, refused, shadow, degraded] = KINDS.map(([key]) => series[key][at] ?? 0);
    const all = allowed + refused;
    const parts = [
      `${clock(second(at) * 1000)}${step() > 1 ? `, ${duration(step() * 1000)}` : ""}: ${count(allowed)} allowed, ${count(refused)} refused`,
    ];
    if (refused > 0) parts.push(`(${share(refused / all)})`);
    if (shadow > 0) parts.push(`· ${plural(shadow, "shadow refusal")}`);
    if (degraded > 0) parts.push(`· ${count(degraded)} without the store`);
    return parts.join(" ");
  }

  function point() {
    const n = length();
    if (n === 0) return;
    const at = n - 1 - Math.min(back ?? 0, n - 1);
    box.setAttribute("aria-valuenow", String(at));
    box.setAttribute("aria-valuemax", String(n - 1));
    box.setAttribute("aria-valuetext", words(at));
    const shown = back !== null;
    cursor.classList.toggle("shown", shown);
    if (shown) {
      const x = ROOM.left + ((at + 0.5) * inner()) / n;
      for (const [name, value] of [
        ["x1", x],
        ["x2", x],
        ["y1", ROOM.top],
        ["y2", height - ROOM.bottom],
      ])
        cursor.setAttribute(name, value);
    }
    const what = step() > 1 ? "step" : "second";
    say(readout, shown ? words(at) : `Point at a ${what}, or use the arrow keys, to read it.`);
  }

  function draw(next) {
    if (next) series = next;
    const n = length();
    if (n === 0 || width === 0) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const total = series.allowed.map((it, i) => it + series.refused[i]);
    const [top, lines] = scale(Math.max(...total, 1));
    const x = (i) => Math.round((ROOM.left + (i * inner()) / n) * 100) / 100;
    const high = height - ROOM.top - ROOM.bottom;
    const y = (v) => Math.round((ROOM.top + high * (1 - v / top)) * 100) / 100;
    const zero = new Array(n).fill(0);
    shapes.refused.setAttribute("d", area(x, y, zero, series.refused));
    shapes.allowed.setAttribute("d", area(x, y, series.refused, total));
    let line = "";
    series.shadow_limited.forEach((it, i) => {
      if (it > 0) line += `M${x(i)} ${y(it)}H${x(i + 1)}`;
    });
    shapes.shadow.setAttribute("d", line);
    let bands = "";
    series.degraded.forEach((it, i) => {
      if (it > 0) bands += `M${x(i)} ${ROOM.top}V${height - ROOM.bottom}H${x(i + 1)}V${ROOM.top}Z`;
    });
    shapes.degraded.setAttribute("d", bands);

    const marks = [];
    for (let i = 0; i <= lines; i += 1) {
      const value = (top * i) / lines;
      marks.push(
        s("line", {
          x1: ROOM.left,
          x2: width - ROOM.right,
          y1: y(value),
          y2: y(value),
          class: i === 0 ? "base" : null,
        }),
      );
      if (i > 0) marks.push(s("text", { x: width - ROOM.right + 8, y: y(value) + 4 }, count(value)));
    }
    marks.push(s("text", { x: width - ROOM.right + 8, y: height - ROOM.bottom + 4 }, `/ ${duration(step() * 1000).replace(/^1 /, "")}`));
    const first = second(0);
    const [wide, offset] = [inner() / (n * step()), zoneOffset(first)];
    const every = n * step() <= 300 ? (width < 480 ? 120 : 60) : (TICKS.find((it) => it * wide >= TICK_ROOM) ?? 2_592_000);
    const label = (t) => (every >= DAY || (every >= HOUR && (t + offset) % DAY === 0) ? day(t * 1000) : clock(t * 1000).slice(-8, -3));
    for (let t = Math.ceil((first + offset) / every) * every - offset; t <= first + n * step(); t += every) {
      const at = x((t - first) / step());
      if (at < ROOM.left + 20 || at > width - ROOM.right - 16) continue;
      marks.push(s("line", { x1: at, x2: at, y1: height - ROOM.bottom, y2: height - ROOM.bottom + 4, class: "base" }));
      marks.push(s("text", { x: at, y: height - 6, "text-anchor": "middle" }, label(t)));
    }
    grid.replaceChildren(...marks);
    point();
  }

  const choose = (to) => {
    back = to;
    point();
  };
  box.addEventListener("pointermove", (event) => {
    const at = Math.floor(((event.clientX - svg.getBoundingClientRect().left - ROOM.left) / inner()) * length());
    choose(Math.min(Math.max(length() - 1 - at, 0), Math.max(length() - 1, 0)));
  });
  box.addEventListener("pointerleave", () => choose(null));
  box.addEventListener("blur", () => choose(null));
  box.addEventListener("keydown", (event) => {
    const last = Math.max(length() - 1, 0);
    const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 30, PageDown: -30 }[event.key];
    if (step !== undefined) choose(Math.min(Math.max((back ?? (step > 0 ? -1 : 0)) + step, 0), last));
    else if (event.key === "Home") choose(last);
    else if (event.key === "End") choose(0);
    else if (event.key === "Escape" && back !== null) choose(null);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    height = Math.max(LEAST_HEIGHT, Math.floor(entry.contentRect.height));
    draw(null);
  }).observe(box);
  return { draw, describe: (text) => box.setAttribute("aria-label", text) };
}

/** Bars for counts; the tallest fills the height. The label is the text alternative. */
export function bars(values, { width = 120, height = 22, label = "", cls = "is-refused" } = {}) {
  const most = Math.max(...values, 1);
  const step = width / Math.max(values.length, 1);
  let path = "";
  values.forEach((it, i) => {
    if (it > 0)
      path += `M${(i * step).toFixed(1)} ${height}v${(-Math.max(1.5, (it / most) * (height - 2))).toFixed(1)}h${Math.max(step - 0.5, 0.6).toFixed(1)}V${height}Z`;
  });
  return small(width, height, label, s("path", { class: cls, d: path }));
}

/** A line for shares of one, with gaps for unknown values. */
export function line(values, { width = 120, height = 22, label = "" } = {}) {
  const step = width / Math.max(values.length, 1);
  let edge = "";
  let filled = "";
  let from = null;
  const end = () => {
    if (from !== null) filled += `V${height}H${(from * step).toFixed(1)}Z`;
    from = null;
  };
  values.forEach((it, i) => {
    if (it === null || it === undefined) return end();
    const y = (1 + (1 - Math.min(Math.max(it, 0), 1)) * (height - 2)).toFixed(1);
    const [x, to] = [(i * step).toFixed(1), ((i + 1) * step).toFixed(1)];
    edge += from === null ? `M${x} ${y}H${to}` : `V${y}H${to}`;
    filled += from === null ? `M${x} ${y}H${to}` : `V${y}H${to}`;
    if (from === null) from = i;
  });
  end();
  return small(
    width,
    height,
    label,
    s("path", { class: "is-left-area", d: filled }),
    s("path", { class: "is-left", d: edge }),
  );
}

function small(width, height, label, ...shapes) {
  const base = s("path", { class: "floor", d: `M0 ${height - 0.5}H${width}` });
  const props = {
    class: "spark",
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  };
  return s("svg", props, base, ...shapes);
}
