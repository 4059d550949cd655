// One sentence, every score: words on a plane, and what each mechanism makes of them.
"use strict";

const SENTENCE = "The animal didn't cross the street because it was too tired".split(" ");
// Set by hand: the two nouns are long and point two ways, and "it" points the way of the noun that the last word makes it mean.
const BEGINNING = {
  tired: [[-1.0, -0.6], [2.1, 0.3], [-0.8, 0.8], [-1.4, -1.5], [-1.4, 0.1], [0.2, 2.1], [-0.4, -1.1], [1.3, 0.35], [0.1, -0.4], [0.8, -1.4], [1.5, -0.6]],
  wide: [[-1.0, -0.6], [2.1, 0.3], [-0.8, 0.8], [-1.4, -1.5], [-1.4, 0.1], [0.2, 2.1], [-0.4, -1.1], [0.3, 1.3], [0.1, -0.4], [0.8, -1.4], [-0.6, 1.4]],
};
const WEIGHT = Float32Array.of(2, 1); // w of the additive scores
const UNIT = 75; // of the plane, in its picture of 400 by 400
const MECHANISMS = [
  ["dot", "q · k / √d"],
  ["distance", "q · k / √d − λ |i − j|"],
  ["additive", "w · tanh(q + k), w = (2, 1)"],
  ["separable", "w · tanh(q) + w · tanh(k), w = (2, 1)"],
  ["gaussian_well", "E = exp(−α d²)"],
  ["inverse_square_well", "E = 1 / (d² + ε)"],
  ["softmax_exponential_well", "E = exp(−α d) / Σ exp(−α d)"],
  ["lorentzian_well", "E = 1 / (1 + α d²)"],
];

class WordsPage {
  constructor() {
    this.put_back();
    find("shown").append(...MECHANISMS.map(([name]) => element("option", {}, name)));
    for (const [id, chosen] of [["query", 7], ["hidden", 1]])
      find(id).append(...SENTENCE.map((word, n) => element("option", { value: n, selected: n === chosen }, `${n + 1} ${word}`)));
    find("cards").append(...MECHANISMS.map(([name, formula]) => element("section", { class: "card", "aria-label": name },
      element("h3", {}, name), element("p", { class: "note" }, formula),
      element("svg", { viewBox: "0 0 400 400", class: "small", id: `plane-${name}`, role: "img" }),
      element("p", { class: "label", id: `most-${name}` }),
      element("ol", { class: "bars words", id: `bars-${name}`, "aria-label": `Weights under ${name}` }))));
    this.draw_plane();
    this.listen();
    this.update();
  }

  // Every word at its beginning, under the ending that is chosen.
  put_back() {
    const ending = find("ending").value;
    SENTENCE[SENTENCE.length - 1] = ending;
    this.points = BEGINNING[ending].map((point) => [...point]);
  }

  settings() {
    const number = (id) => Number(find(id).value);
    return { query: number("query"), temperature: number("temperature"), mask: find("mask").value, shown: find("shown").value, hidden: number("hidden"), strength: number("strength"), alpha: number("alpha"), form: find("form").value };
  }

  // Scores of every word as a query with every word as a key, by the functions that the models use.
  scores(name, { strength, alpha, form }, attn_mask) {
    const x = Matrix.of(SENTENCE.length, 2, (i, j) => this.points[i][j]);
    if (name === "dot") return dot_product_scores(x, x);
    if (name === "distance") return distance_biased_scores(x, x, [strength, strength]);
    if (name === "additive") return additive_scores(x, x, WEIGHT);
    if (name === "separable") return separable_additive_scores(x, x, WEIGHT);
    return energy_well_scores(x, x, name.replace("_well", ""), { form, alpha, attn_mask });
  }

  attend(name, settings, attn_mask) {
    const scores = this.scores(name, settings, attn_mask), value = Matrix.of(SENTENCE.length, 2, (i, j) => this.points[i][j]);
    return attend(each(scores, (score) => score / settings.temperature), value, attn_mask);
  }

  update() {
    const settings = this.settings(), { query, mask, hidden, shown } = settings;
    const seen = { none: null, causal: causal_mask(SENTENCE.length), hide: (i, j) => j !== hidden }[mask];
    for (const id of ["temperature", "strength", "alpha"]) find(id).parentElement.querySelector("output").textContent = find(id).value;
    find("hidden").disabled = mask !== "hide";
    for (const [name] of MECHANISMS) {
      const { output, weights } = this.attend(name, settings, seen), row = Array.from(weights.row(query)), best = row.indexOf(Math.max(...row));
      draw_bars(find(`bars-${name}`), SENTENCE, row, best);
      find(`most-${name}`).textContent = `Weights: most at “${SENTENCE[best]}”`;
      this.draw_answer(name, row, output.row(query));
      if (name === shown) this.show(row, best);
    }
    this.place();
    this.draw_moat(settings);
    draw_table(find("cancels"), MECHANISMS.map(([name]) => [name, percent(this.dependence(name, settings))]), ["mechanism", "largest change of a weight between two queries"]);
  }

  // One mechanism's weights over the sentence and in the plane.
  show(row, best) {
    const { query, shown } = this.settings(), largest = Math.max(...row);
    find("sentence").replaceChildren(...SENTENCE.flatMap((word, n) => [element("span", { class: n === query ? "asks" : null, style: `background: rgba(var(--glow), ${(0.75 * row[n]) / largest})` }, word), " "]));
    const from = this.at(this.points[query]).join(" ");
    find("lines").replaceChildren(...this.points.map((point, n) => element("path", { d: `M${from}L${this.at(point).join(" ")}`, style: `stroke: var(--warm); stroke-width: ${12 * row[n]}; stroke-opacity: 0.7` })));
    say("asks", `Under ${shown}, “${SENTENCE[query]}” looks most at ${best === query ? "itself" : `“${SENTENCE[best]}”`}: ${percent(row[best])} of its weight.`);
  }

  dependence(name, settings) {
    const { weights } = this.attend(name, settings, null);
    const spread = (j) => { const column = Array.from({ length: weights.rows }, (_, i) => weights.get(i, j)); return Math.max(...column) - Math.min(...column); };
    return Math.max(...SENTENCE.map((_, j) => spread(j)));
  }

  // The weight of a key at each distance, beside that of one at distance 0.
  draw_moat({ alpha, form }) {
    const wells = { Gaussian: "gaussian", Lorentzian: "lorentzian", "exponential": "softmax_exponential" };
    const query = new Matrix(1, 1), distances = Array.from({ length: 81 }, (_, n) => n / 16);
    const key = Matrix.of(distances.length, 1, (i) => distances[i]);
    draw_curves(find("moat"), Object.fromEntries(Object.entries(wells).map(([name, well]) => {
      const shown = well === "softmax_exponential" ? (d) => (form === "field" ? -alpha * d : -d * Math.exp(-alpha * d)) : null;
      const scores = shown ? distances.map(shown) : energy_well_scores(query, key, well, { form, alpha }).row(0);
      return [name, distances.map((d, n) => [d, Math.exp(scores[n] - scores[0])])];
    })), { xlabel: "distance d", ylabel: "weight, beside that of d = 0" });
  }

  draw_answer(name, row, output) {
    const plane = find(`plane-${name}`), at = (v) => this.at(v), largest = Math.max(...row, 1e-9), { query } = this.settings();
    plane.replaceChildren(...this.points.map((point, n) => element("circle", { cx: at(point)[0], cy: at(point)[1], r: 4 + 26 * Math.sqrt(row[n] / largest) * Math.sqrt(Math.min(1, largest * 2)), style: `fill: var(--${n === query ? "b" : "a"}); fill-opacity: 0.55` })),
      element("path", { d: `M${at(output)[0] - 16} ${at(output)[1]}h32M${at(output)[0]} ${at(output)[1] - 16}v32`, style: "stroke: var(--text)", "stroke-width": 6 }));
    plane.setAttribute("aria-label", `Under ${name} the output lies at ${output[0].toFixed(2)}, ${output[1].toFixed(2)}.`);
  }

  at([x, y]) { return [200 + UNIT * x, 200 - UNIT * y]; }

  draw_plane() {
    const plane = find("plane");
    plane.append(element("path", { d: "M200 0V400M0 200H400", class: "grid" }), element("g", { id: "lines", "aria-hidden": "true" }));
    this.handles = SENTENCE.map((word, n) => {
      const handle = element("g", { tabindex: 0, role: "button", class: "word" }, element("circle", { r: 11 }), element("text", { "text-anchor": "middle", y: -15 }, word));
      handle.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        handle.focus();
        handle.setPointerCapture(event.pointerId);
        handle.onpointermove = (move) => {
          const box = plane.getBoundingClientRect();
          this.move(n, [(((move.clientX - box.left) / box.width) * 400 - 200) / UNIT, (200 - ((move.clientY - box.top) / box.height) * 400) / UNIT]);
        };
      });
      for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => { handle.onpointermove = null; });
      handle.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
        if (!step && event.key !== "Enter") return;
        event.preventDefault();
        if (step) return this.move(n, this.points[n].map((c, d) => c + step[d]));
        find("query").value = n;
        this.update();
      });
      return handle;
    });
    plane.append(...this.handles);
  }

  place() {
    const { query } = this.settings();
    this.handles.forEach((handle, n) => {
      const [x, y] = this.at(this.points[n]);
      handle.setAttribute("transform", `translate(${x} ${y})`);
      handle.setAttribute("aria-label", `${SENTENCE[n]}, at ${this.points[n].map((c) => c.toFixed(1)).join(", ")}. Arrow keys move it, Enter lets it ask.`);
      handle.firstChild.setAttribute("style", `fill: var(--${n === query ? "b" : "a"})`);
      handle.lastChild.textContent = SENTENCE[n];
      for (const id of ["query", "hidden"]) find(id).options[n].textContent = `${n + 1} ${SENTENCE[n]}`;
    });
  }

  move(n, point) {
    this.points[n] = point.map((c) => Math.min(2.3, Math.max(-2.3, c)));
    this.update();
    say("moved", `${SENTENCE[n]} is now at ${this.points[n].map((c) => c.toFixed(1)).join(", ")}.`);
  }

  listen() {
    for (const id of ["query", "temperature", "mask", "hidden", "strength", "alpha", "form", "shown"]) find(id).addEventListener("input", () => this.update());
    for (const [id, change] of [["reset", "click"], ["ending", "input"]]) find(id).addEventListener(change, () => {
      this.put_back();
      this.update();
    });
  }
}
