// What the pages are drawn with: elements, bars, curves, digits with attention on them. Everything has a text beside it.
"use strict";

function element(tag, attributes = {}, ...children) {
  const SVG = ["svg", "path", "line", "circle", "text", "g", "rect", "title"].includes(tag);
  const made = SVG ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const find = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
const named = (value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(4)).toString() : String(value));
const on_axis = (value) => (Math.abs(value) >= 1e5 ? value.toExponential(0).replace("e+", "e") : named(value));

const softmax = (logits) => Array.from(masked_softmax(new Matrix(1, logits.length, Float32Array.from(logits))).row(0));

// Tells a screen reader, and everybody else, what has changed.
function say(id, text) {
  if (find(id).textContent !== text) find(id).textContent = text;
}

// Bars as a list: each has its name, its length and its number. A full bar is 100 %, or the largest of other numbers.
function draw_bars(list, names, shares, chosen = null, value = percent) {
  const largest = value === percent ? 1 : Math.max(...shares, 1e-9);
  list.replaceChildren(...names.map((name, n) =>
    element("li", { class: n === chosen ? "chosen" : null },
      element("span", { class: "name" }, name),
      element("span", { class: "bar", "aria-hidden": "true" }, element("span", { style: `width: ${(100 * shares[n]) / largest}%` })),
      element("span", { class: "value" }, value(shares[n])))));
}

// Curves over one axis, each series a list of [x, y]; `log` makes both axes logarithmic.
function draw_curves(figure, series, { xlabel, ylabel, log = false, marks = false }) {
  const [width, height, left, bottom, top, right] = [600, 300, 60, 44, 12, 26];
  const scale = (values, low, high, logarithmic) => {
    const f = logarithmic ? Math.log10 : (v) => v, [from, to] = [f(Math.min(...values)), f(Math.max(...values))];
    const span = to - from || 1;
    const ticks = logarithmic ? decades(from, to) : nice_ticks(from, to);
    return { at: (v) => low + ((f(v) - from) / span) * (high - low), ticks };
  };
  const points = Object.values(series).flat(), xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const x = scale(xs, left, width - right, log), y = scale(ys, height - bottom, top, log);
  const said = Object.entries(series).map(([name, line]) => `${name}: from ${named(line[0][1])} at ${named(line[0][0])} to ${named(line[line.length - 1][1])} at ${named(line[line.length - 1][0])}`);
  const svg = element("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${ylabel} against ${xlabel}. ${said.join("; ")}.` });
  for (const tick of x.ticks) svg.append(element("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: top, y2: height - bottom }),
    element("text", { x: x.at(tick), y: height - bottom + 16, "text-anchor": "middle" }, on_axis(tick)));
  for (const tick of y.ticks) svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y.at(tick), y2: y.at(tick) }),
    element("text", { x: left - 6, y: y.at(tick) + 4, "text-anchor": "end" }, on_axis(tick)));
  svg.append(element("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}` }),
    element("text", { x: (left + width) / 2, y: height - 8, "text-anchor": "middle" }, xlabel),
    element("text", { x: 14, y: height / 2, transform: `rotate(-90 14 ${height / 2})`, "text-anchor": "middle" }, ylabel));
  Object.entries(series).forEach(([name, line], n) => {
    const colour = `var(--${"abcd"[n % 4]})`;
    svg.append(element("path", { d: `M${line.map(([u, v]) => `${x.at(u).toFixed(1)} ${y.at(v).toFixed(1)}`).join("L")}`, fill: "none", style: `stroke: ${colour}`, "stroke-width": 2, "stroke-dasharray": ["", "7 3", "2 3", "9 3 2 3"][n % 4] }));
    if (marks) for (const [u, v] of line) svg.append(element("circle", { cx: x.at(u), cy: y.at(v), r: 3, style: `fill: ${colour}` }));
  });
  const legend = element("figcaption", {}, ...Object.keys(series).map((name, n) =>
    element("span", { style: "margin-right: 1.2rem; white-space: nowrap" }, element("span", { "aria-hidden": "true", style: `display: inline-block; width: 1.4rem; border-top: 3px ${["solid", "dashed", "dotted", "dashed"][n % 4]} var(--${"abcd"[n % 4]}); vertical-align: middle; margin-right: .4rem` }), name)));
  figure.replaceChildren(svg, legend);
}

// Powers of ten, and on a short axis also twice and five times them.
function decades(from, to) {
  const within = (v) => Math.log10(v) >= from - 1e-9 && Math.log10(v) <= to + 1e-9, steps = to - from < 2.5 ? [1, 2, 5] : [1];
  return Array.from({ length: Math.floor(to) - Math.floor(from) + 1 }, (_, n) => steps.map((s) => s * 10 ** (Math.floor(from) + n))).flat().filter(within);
}

function nice_ticks(from, to) {
  const rough = (to - from) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((n) => n * power >= rough);
  return Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, n) => (Math.ceil(from / step) + n) * step);
}

// A grey picture of `size` by `size` values from 0 to 1, and over it, in orange, how much weight each patch gets.
function draw_picture(canvas, pixels, size, { weights = null, chosen = null, hidden = null, patch = 1 } = {}) {
  const zoom = Math.max(1, Math.round(196 / size)), grid = size / patch;
  canvas.width = canvas.height = size * zoom;
  const context = canvas.getContext("2d");
  for (let i = 0; i < size * size; i++) {
    const grey = Math.round(255 * Math.min(1, Math.max(0, pixels[i])));
    context.fillStyle = `rgb(${grey},${grey},${grey})`;
    context.fillRect((i % size) * zoom, Math.floor(i / size) * zoom, zoom, zoom);
  }
  const square = (n) => [(n % grid) * patch * zoom, Math.floor(n / grid) * patch * zoom, patch * zoom, patch * zoom];
  if (weights) {
    const largest = Math.max(...weights);
    weights.forEach((weight, n) => {
      context.fillStyle = `rgba(255,140,0,${(0.75 * weight) / largest})`;
      context.fillRect(...square(n));
    });
  }
  const frame = (n, colour) => {
    context.strokeStyle = colour;
    context.lineWidth = Math.max(2, zoom / 2);
    context.strokeRect(...square(n));
  };
  if (hidden !== null) {
    context.fillStyle = "#7a1f1f";
    context.fillRect(...square(hidden));
  }
  if (chosen !== null) frame(chosen, "#4fc3ff");
}

function draw_table(table, rows, head = null) {
  const cells = (row, tag) => row.map((cell, n) => element(n === 0 && tag === "td" ? "th" : tag, n === 0 && tag === "td" ? { scope: "row" } : tag === "th" ? { scope: "col" } : {}, named(cell)));
  table.replaceChildren(...(head ? [element("thead", {}, element("tr", {}, ...cells(head, "th")))] : []),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row, "td")))));
}

// The loss curve, the settings, and how far the page is from torch.
function draw_facts(packed) {
  if (packed.history) draw_curves(find("loss"), packed.history, { xlabel: "step", ylabel: packed.unit });
  else find("loss").replaceChildren(element("p", {}, "The training's losses were not handed over."));
  draw_table(find("settings"), packed.facts);
}

// Why the page's logits are not torch's to the last digit.
function rounding({ facts }) {
  const dtype = Object.fromEntries(facts)["weights in this page"];
  const rounded = dtype === "float32" ? "" : `The weights in this page are rounded to ${dtype}. `;
  return `${rounded}With the same weights the two agree to 0.0001; the tests of the course hold them to it.`;
}

const darkens = matchMedia("(prefers-color-scheme: dark)");
const shade = (theme) => document.documentElement.setAttribute("data-theme", theme);
shade(darkens.matches ? "dark" : "light");
darkens.addEventListener("change", () => shade(darkens.matches ? "dark" : "light"));
find("theme").addEventListener("click", () => shade(document.documentElement.getAttribute("data-theme") === "dark" ? "light" : "dark"));
