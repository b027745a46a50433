// Charts as inline SVG, drawn at the width they have; each with a title, a description and its numbers as a table.

import { power, shown } from "./words.js";

const SPACE = "http://www.w3.org/2000/svg";
let lastId = 0;

/** An element: make("td", { class: "words" }, "text", child, …). */
export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SPACE, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A number for people that keeps its value for programs. */
export const number = (value, digits) =>
  value === null || value === undefined ? shown(value) : make("data", { value: String(value) }, shown(value, digits));

/** A table: heads are texts, rows are lists of cells. */
export function table(heads, rows, { caption, words: textual = [] } = {}) {
  const wordy = (i) => (textual.includes(i) ? "words" : null);
  return make(
    "table", {},
    caption ? make("caption", {}, caption) : null,
    make("thead", {}, make("tr", {}, ...heads.map((head, i) => make("th", { scope: "col", class: wordy(i) }, head)))),
    make("tbody", {}, ...rows.map(({ cells, main }) =>
      make("tr", { class: main ? "main" : null }, ...cells.map((cell, i) => {
        if (cell?.across) return make("td", { class: "words note", colspan: cell.across }, cell.content);
        const content = Array.isArray(cell) ? cell : [cell];
        return i === 0 ? make("th", { scope: "row" }, ...content) : make("td", { class: wordy(i) }, ...content);
      })))),
  );
}

function picture(width, height, title, description) {
  const id = `chart-${(lastId += 1)}`;
  return draw(
    "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": `${id}-t ${id}-d` },
    draw("title", { id: `${id}-t` }, title),
    draw("desc", { id: `${id}-d` }, description),
  );
}

const text = (x, y, content, attributes = {}) => draw("text", { x, y, ...attributes }, content);

// Redraw at the new width when a chart's place changes it.
const painters = new WeakMap();
const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const { paint, width } = painters.get(target) ?? {};
    if (paint && Math.abs(target.clientWidth - width) > 1) repaint(target, paint);
  }
});

function repaint(place, paint) {
  const open = place.querySelector("details")?.open ?? false;
  const width = Math.max(240, place.clientWidth);
  place.replaceChildren(...paint(width));
  const details = place.querySelector("details");
  if (details) details.open = open;
  painters.set(place, { paint, width: place.clientWidth });
}

function show(place, paint) {
  repaint(place, paint);
  watcher.observe(place);
}

const numbers = (heads, rows) =>
  make("details", {}, make("summary", {}, "Numbers"), make("div", { class: "scroll" }, table(heads, rows)));

function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (x) => x;
  const at = (x) => from + ((f(x) - f(low)) / (f(high) - f(low))) * (to - from);
  return Object.assign(at, { low, high });
}

/** Whole decades around positive values. */
function decades(values) {
  const low = Math.floor(Math.log10(Math.min(...values)) + 1e-9);
  const high = Math.ceil(Math.log10(Math.max(...values)) - 1e-9);
  return [10 ** low, 10 ** Math.max(high, low + 1)];
}

function logTicks(low, high, most) {
  const from = Math.ceil(Math.log10(low) - 1e-9), to = Math.floor(Math.log10(high) + 1e-9);
  const span = Math.log10(high / low);
  const steps = span <= 1.6 && most > 4 ? [1, 2, 5] : span <= 2.3 && most > 4 ? [1, 3] : [1];
  const stride = steps.length > 1 ? 1 : Math.max(1, Math.ceil((to - from + 1) / most));
  const listed = [];
  for (let e = from - 1; e <= to; e += 1) {
    if (steps.length === 1 && (to - e) % stride !== 0) continue;
    for (const step of steps) {
      const value = step * 10 ** e;
      if (value >= low * 0.999 && value <= high * 1.001) listed.push(value);
    }
  }
  return listed;
}

/** Horizontal bars. rows: {name, value|null, note, marked, more}; mark: {value, label} draws a line across. */
export function bars(place, { title, description, rows, log = false, mark = null, heads = ["value"], absent = "does not apply" }) {
  const known = rows.filter((row) => row.value > 0).map((row) => row.value).concat(mark ? [mark.value] : []);
  show(place, (width) => {
    const names = 14 + 7.2 * Math.max(...rows.map((row) => row.name.length));
    const wide = names < 0.36 * width;
    const left = wide ? names : 0;
    const right = 74, top = mark ? 22 : 4, step = wide ? 34 : 46;
    const height = top + step * rows.length + 4;
    const [low, high] = !known.length ? [0, 1] : log ? decades(known) : [0, Math.max(...known)];
    const x = scale(log && known.length && Math.min(...known) < low * 1.6 ? low / 2 : low, high, left, width - right, log);
    const svg = picture(width, height, title, description);
    if (log && known.length) {
      for (const tick of logTicks(x.low, x.high, 12)) {
        svg.append(draw("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top - 2, y2: height }));
      }
    }
    if (mark) {
      const at = x(mark.value);
      svg.append(
        draw("line", { class: "promise-line", x1: at, x2: at, y1: top - 4, y2: height }),
        text(at, 12, mark.label, { class: "promise-text", "text-anchor": at > width - 120 ? "end" : at < 60 ? "start" : "middle" }),
      );
    }
    rows.forEach((row, i) => {
      const y = top + i * step, middle = y + (wide ? step / 2 : step - 14);
      const style = row.marked ? " marked" : "";
      svg.append(text(0, wide ? middle + 4.5 : y + 15, row.name + (row.note && !wide ? ` (${row.note})` : ""), { class: `name${style}` }));
      if (row.value === null || row.value === undefined) {
        svg.append(text(left + 4, middle + 4.5, absent));
        return;
      }
      const end = row.value > 0 ? Math.max(x(row.value), left + 2) : left + 1;
      svg.append(
        draw("rect", { class: `bar${style}`, x: left, y: middle - 8, width: Math.max(1, end - left), height: 16, rx: 2.5 }),
        text(end + 6, middle + 4.5, shown(row.value) + (row.note && wide && end < width - 160 ? ` (${row.note})` : ""), { class: `value${style}` }),
      );
    });
    const cells = rows.map((row) => ({ cells: [row.name + (row.note ? ` (${row.note})` : ""), number(row.value), ...(row.more ?? []).map((one) => number(one))], main: row.marked }));
    return [svg, numbers(["", ...heads], cells)];
  });
}

function axes(svg, x, y, { width, left, right, top, bottom, base, xLabel, yLabel }) {
  for (const tick of logTicks(y.low, y.high, 6)) {
    svg.append(
      draw("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      text(left - 7, y(tick) + 4, y.high / y.low > 1e5 && tick < 1 ? power(Math.round(Math.log10(tick))) : shown(tick), { "text-anchor": "end" }),
    );
  }
  for (const tick of logTicks(x.low, x.high, width > 420 ? 7 : 5)) {
    svg.append(
      draw("line", { class: "axis", x1: x(tick), x2: x(tick), y1: base, y2: base + 5 }),
      text(x(tick), base + 19, shown(tick), { "text-anchor": "middle" }),
    );
  }
  svg.append(
    draw("line", { class: "axis", x1: left, x2: width - right, y1: base, y2: base }),
    text((left + width - right) / 2, base + bottom - 6, xLabel, { "text-anchor": "middle" }),
    text(0, top - 18, yLabel, { class: "title" }),
  );
}

const path = (points, x, y) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

/**
 * Lines on logarithmic axes. series: {name, label, points: [[x, y]…], dots, wide}; a point with y = null is a gap;
 * mark: {x, y, label} is crossed by dashed lines; now: {x, y} is ringed.
 */
export function lines(place, { title, description, series, xLabel, yLabel, xRange, yRange, mark = null, now = null, height = 300, legend = true, heads, gaps = [] }) {
  show(place, (width) => {
    const left = 52, right = 22, top = 38, bottom = 42, base = height - bottom;
    const svg = picture(width, height, title, description);
    const x = scale(...xRange, left, width - right, true);
    const y = scale(...yRange, base, top, true);
    axes(svg, x, y, { width, left, right, top, bottom, base, xLabel, yLabel });
    const inside = ([a, b]) => b > 0 && a >= xRange[0] * 0.999 && a <= xRange[1] * 1.001 && b >= yRange[0] * 0.999 && b <= yRange[1] * 1.001;
    const spots = [];
    for (const one of series) {
      const points = one.points.filter(inside);
      spots.push(...points.map((point) => ({ one, point })));
      if (points.length > 1) svg.append(draw("path", { class: `line ${one.name}`, d: path(points, x, y) }));
      if (one.dots) {
        for (const [a, b] of points) svg.append(draw("circle", { class: `dot ${one.name}`, cx: x(a), cy: y(b), r: 4 }));
      }
    }
    for (const gap of gaps) svg.append(text(x(gap), base - 7, "×", { "text-anchor": "middle", class: "name" }));
    if (mark) {
      const [a, b] = [x(mark.x), y(mark.y)];
      svg.append(
        draw("path", { class: "promise-line", fill: "none", d: `M${left} ${b}H${a}V${base}` }),
        draw("circle", { class: "promise-dot", cx: a, cy: b, r: 5.5 }),
        text(a + (a > width - 130 ? -10 : 10), b - 9, mark.label, { class: "promise-text", "text-anchor": a > width - 130 ? "end" : "start" }),
      );
    }
    if (now && inside([now.x, now.y])) svg.append(draw("circle", { class: "dot now", cx: x(now.x), cy: y(now.y), r: 6 }));
    const tip = pointing(svg, spots, x, y, width, [xLabel, yLabel]);
    const rows = series.flatMap((one) => one.points.map((point) => ({ cells: heads.length > 2 ? [one.label, number(point[0]), number(point[1])] : [number(point[0]), number(point[1])] })));
    return [svg, tip, legend ? legendOf(series) : null, numbers(heads, rows)].filter(Boolean);
  });
}

function legendOf(series) {
  return make("ul", { class: "legend" }, ...series.map((one) => make(
    "li", {},
    draw("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, draw("path", { class: `line ${one.name}`, d: "M2 6H28" })),
    one.label,
  )));
}

/** Say the values of the point nearest to the pointer. */
function pointing(svg, spots, x, y, width, [xName, yName]) {
  const tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const ring = draw("circle", { class: "dot near", r: 4, visibility: "hidden" });
  svg.append(ring);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), factor = width / box.width;
    const [px, py] = [(event.clientX - box.left) * factor, (event.clientY - box.top) * factor];
    let best = null;
    for (const spot of spots) {
      const far = Math.hypot(x(spot.point[0]) - px, y(spot.point[1]) - py);
      if (!best || far < best.far) best = { far, ...spot };
    }
    const near = best && best.far < 60;
    tip.hidden = !near;
    ring.setAttribute("visibility", near ? "visible" : "hidden");
    if (!near) return;
    const [a, b] = [x(best.point[0]), y(best.point[1])];
    ring.setAttribute("cx", a);
    ring.setAttribute("cy", b);
    tip.textContent = `${best.one.label === yName ? "" : `${best.one.label}: `}${xName} ${shown(best.point[0])}, ${yName} ${shown(best.point[1])}`;
    tip.style.left = `${Math.max(0, Math.min(a / factor - tip.offsetWidth / 2, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${b / factor - 34}px`;
  });
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    ring.setAttribute("visibility", "hidden");
  });
  return tip;
}

/** A hundred people, of whom some are found, and some of those by guessing already. */
export function hundred(found, guessed, title, description) {
  const svg = picture(120, 120, title, description);
  svg.classList.add("icons");
  for (let i = 0; i < 100; i += 1) {
    const style = i < guessed ? "guess" : i < found ? "found" : "person";
    svg.append(draw("circle", { class: style, cx: 6 + 12 * (i % 10), cy: 6 + 12 * Math.floor(i / 10), r: 4.6 }));
  }
  return svg;
}

/** What the colors of `hundred` mean. */
export function hundredKey(entries) {
  return make("p", { class: "key" }, ...entries.map(([style, label]) => make(
    "span", {}, draw("svg", { class: "icons", viewBox: "0 0 12 12", "aria-hidden": "true" }, draw("circle", { class: style, cx: 6, cy: 6, r: 5 })), label,
  )));
}

/** Decades around values, for the range of an axis. */
export const around = decades;
