// The chart of the Lab: one line for each algorithm over time, with the limit as a level and the ends
// of windows.

import { scale } from "./chart.js";
import { h, s, say } from "./dom.js";
import { count } from "./format.js";

const HEIGHT = 280;
const ROOM = { left: 6, right: 48, top: 18, bottom: 26 };
const MOST_BORDERS = 30;

/** The line style of each algorithm, independent of the others. */
export const ORDER = ["fixed-window", "sliding-window", "sliding-parts", "sliding-log", "token-bucket", "gcra", "sliding-strict"];
export const lineOf = (algorithm) => `line-${Math.max(ORDER.indexOf(algorithm), 0)}`;

/** Seconds from the start, in the unit for `length` seconds. */
function timeWords(length) {
  if (length <= 180) return [1, "s"];
  if (length <= 10_800) return [60, "min"];
  if (length <= 259_200) return [3600, "h"];
  return [86_400, "d"];
}

/**
 * `draw(round, kind)` with every answer. Kind "window": what one key was let through in the window that ends there;
 * "arrivals": what comes and goes. `drawLines(lines, frame)` draws other series: lines have a name, a class and values,
 * and the frame has the length of a cell and the times of vertical lines. Hover or arrow keys read one moment.
 */
export function labChart(parent) {
  const svg = s("svg", { class: "lab-picture", "aria-hidden": "true" });
  const grid = s("g", { class: "grid" });
  const lines = s("g");
  const cursor = s("line", { class: "cursor" });
  svg.append(grid, lines, cursor);
  const box = h(
    "div",
    {
      class: "chart-box lab-box",
      tabindex: "0",
      role: "slider",
      "aria-label": "What was let through over time",
      "aria-orientation": "horizontal",
      "aria-valuemin": "0",
      "aria-valuemax": "0",
      "aria-valuenow": "0",
    },
    svg,
  );
  const readout = h("p", { class: "readout" });
  const legend = h("ul", { class: "legend lab-legend" });
  parent.append(box, h("div", { class: "under-chart" }, readout, legend));

  let shown = null;
  let width = 0;
  let at = null;

  const cells = () => shown?.cells ?? 0;
  const inner = () => Math.max(1, width - ROOM.left - ROOM.right);
  const x = (cell) => Math.round((ROOM.left + (cell * inner()) / Math.max(cells(), 1)) * 100) / 100;

  function words(cell) {
    const time = cell * shown.step;
    const parts = shown.lines.map((it) => `${it.name} ${count(it.values[cell] ?? 0)}`);
    return `${(time / shown.unit).toFixed(1).replace(".0", "")} ${shown.word}: ${parts.join(", ")}`;
  }

  function point() {
    if (cells() === 0) return;
    const cell = Math.min(at ?? 0, cells() - 1);
    box.setAttribute("aria-valuemax", String(cells() - 1));
    box.setAttribute("aria-valuenow", String(cell));
    box.setAttribute("aria-valuetext", words(cell));
    cursor.classList.toggle("shown", at !== null);
    const middle = x(cell + 0.5);
    for (const [name, value] of Object.entries({ x1: middle, x2: middle, y1: ROOM.top, y2: HEIGHT - ROOM.bottom }))
      cursor.setAttribute(name, value);
    say(readout, at === null ? "Point at a moment, or use the arrow keys, to read it." : words(cell));
  }

  function redraw() {
    if (shown === null || width === 0) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const most = Math.max(shown.level ?? 0, ...shown.lines.map((it) => Math.max(...it.values, 0)), 1);
    const [top, marks] = scale(most);
    const high = HEIGHT - ROOM.top - ROOM.bottom;
    const y = (value) => Math.round((ROOM.top + high * (1 - value / top)) * 100) / 100;
    const drawn = [];
    for (let i = 0; i <= marks; i += 1) {
      const value = (top * i) / marks;
      const place = { x1: ROOM.left, x2: width - ROOM.right, y1: y(value), y2: y(value) };
      drawn.push(s("line", { ...place, class: i === 0 ? "base" : null }));
      drawn.push(s("text", { x: width - ROOM.right + 8, y: y(value) + 4 }, count(value)));
    }
    const length = cells() * shown.step;
    for (const time of shown.borders) {
      const place = x(time / shown.step);
      drawn.push(s("line", { x1: place, x2: place, y1: ROOM.top, y2: HEIGHT - ROOM.bottom, class: "border" }));
    }
    const every = scale(length / shown.unit / (width < 480 ? 4 : 8))[0] / 2 || 1;
    for (let t = 0; t * shown.unit <= length + 1e-9; t += every) {
      const place = x((t * shown.unit) / shown.step);
      if (place > width - ROOM.right + 1) break;
      drawn.push(
        s("text", { x: place, y: HEIGHT - 8, "text-anchor": t === 0 ? "start" : "middle" }, `${t} ${shown.word}`),
      );
    }
    if (shown.level !== null) {
      const place = { x1: ROOM.left, x2: width - ROOM.right, y1: y(shown.level), y2: y(shown.level) };
      drawn.push(s("line", { ...place, class: "level" }));
      drawn.push(s("text", { x: ROOM.left + 2, y: y(shown.level) - 5, class: "level" }, shown.levelWords));
    }
    grid.replaceChildren(...drawn);
    lines.replaceChildren(
      ...shown.lines.map((it) => {
        let path = "";
        it.values.forEach((value, cell) => {
          path += `${cell === 0 ? `M${x(0)} ` : "V"}${y(value)}H${x(cell + 1)}`;
        });
        return s("path", { class: it.cls, d: path });
      }),
    );
    point();
  }

  function draw(round, kind) {
    const comesBack = round.traffic.retry !== null;
    const list = round.algorithms.map((it) => ({
      name: it.algorithm,
      cls: lineOf(it.algorithm),
      values: kind === "window" ? it.series.window : comesBack ? it.series.offered : it.series.admitted,
    }));
    if (kind === "arrivals" && !comesBack)
      list.unshift({ name: "asked", cls: "line-asked", values: round.algorithms[0].series.offered });
    const length = list[0].values.length * round.step_s;
    const borders = [];
    if (length / round.window_s <= MOST_BORDERS)
      for (let t = round.window_s; t < length - 1e-9; t += round.window_s) borders.push(t);
    const level = kind === "window" ? round.limit : null;
    drawLines(list, { step: round.step_s, borders, level, levelWords: `limit ${count(level)}` });
  }

  function drawLines(list, { step, borders, level = null, levelWords = "" }) {
    const [unit, word] = timeWords(list[0].values.length * step);
    shown = { lines: list, cells: list[0].values.length, step, borders, level, levelWords, unit, word };
    legend.replaceChildren(
      ...list.map((it) =>
        h(
          "li",
          null,
          s("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, s("path", { class: it.cls, d: "M0 4H26" })),
          it.name,
        ),
      ),
    );
    redraw();
  }

  const choose = (to) => {
    at = to === null ? null : Math.min(Math.max(to, 0), Math.max(cells() - 1, 0));
    point();
  };
  box.addEventListener("pointermove", (event) => {
    choose(Math.floor(((event.clientX - svg.getBoundingClientRect().left - ROOM.left) / inner()) * cells()));
  });
  box.addEventListener("pointerleave", () => choose(null));
  box.addEventListener("blur", () => choose(null));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -20, PageUp: 20 }[event.key];
    if (step !== undefined) choose((at ?? -1) + step);
    else if (event.key === "Home") choose(0);
    else if (event.key === "End") choose(cells() - 1);
    else if (event.key === "Escape" && at !== null) choose(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    redraw();
  }).observe(box);
  return { draw, drawLines };
}
