// A digit is drawn, read, and looked at: the page of an image transformer.
"use strict";

const FIELD = 28; // the drawing has MNIST's size

class DigitPage {
  constructor(packed) {
    Object.assign(this, { packed, model: load_model(packed), ink: new Float32Array(FIELD * FIELD), chosen: null, hidden: null });
    this.size = packed.input.size;
    this.patch = this.model.to_sequence.patch_size;
    this.grid = this.size / this.patch;
    this.pen = { x: 14, y: 6, down: false };
    this.listen();
    this.show_check();
    this.take_example(0);
  }

  // The picture as the model gets it: centred if asked for, averaged over squares, and from black to white.
  seen(ink = this.ink, centering = find("center").checked && !this.is_example) {
    const whole = centering ? centered(ink) : ink;
    const pooled = FIELD === this.size ? whole : pooled_to(whole, this.size);
    const shown = Float32Array.from(pooled);
    if (this.hidden !== null) for (const p of this.pixels_of(this.hidden)) shown[p] = 0;
    return shown;
  }

  read(shown) {
    const { black, white } = this.packed.input;
    return this.model.forward(shown.map((value) => black + (white - black) * value));
  }

  pixels_of(n) {
    const row = Math.floor(n / this.grid) * this.patch, column = (n % this.grid) * this.patch;
    return Array.from({ length: this.patch ** 2 }, (_, p) => (row + Math.floor(p / this.patch)) * this.size + column + (p % this.patch));
  }

  update() {
    const started = performance.now(), shown = this.seen(), { logits, weights } = this.read(shown);
    const elapsed = performance.now() - started, probabilities = softmax(logits);
    const best = probabilities.indexOf(Math.max(...probabilities));
    Object.assign(this, { shown, weights, probabilities, best });
    draw_bars(find("bars"), Array.from(probabilities, (_, n) => String(n)), probabilities, best);
    const answer = `${best}, with ${percent(probabilities[best])}.`;
    say("said", this.ink.some((v) => v > 0) ? `It reads ${answer}` : `The field is empty, and the model can only name a digit: ${answer}`);
    find("speed").textContent = `Read in ${elapsed.toFixed(1)} ms, in this page.`;
    this.draw_field();
    this.look();
    this.after?.();
  }

  // Everything that depends on the chosen patch.
  look() {
    const { shown, size, patch, chosen, hidden } = this;
    draw_picture(find("seen"), shown, size, { chosen, hidden, patch });
    say("patch", chosen === null ? "No patch is chosen yet: the maps show the average over all patches." : this.describe_patch(chosen));
    find("heads").style.setProperty("--heads", Math.min(6, this.weights[0].length)); // a row for each block
    find("heads").replaceChildren(...this.weights.flatMap((heads, layer) => heads.map((map, h) => {
      const weights = chosen === null ? column_means(map) : Array.from(map.row(chosen));
      const strongest = weights.indexOf(Math.max(...weights));
      const canvas = element("canvas", { role: "img", "aria-label": `Block ${layer + 1}, head ${h + 1}: most weight, ${percent(weights[strongest])}, on row ${1 + Math.floor(strongest / this.grid)}, column ${1 + (strongest % this.grid)}` });
      draw_picture(canvas, shown, size, { weights, chosen, patch });
      return element("figure", {}, canvas, element("figcaption", {}, `block ${layer + 1}, head ${h + 1}`));
    })));
  }

  describe_patch(n) {
    return `Patch in row ${1 + Math.floor(n / this.grid)}, column ${1 + (n % this.grid)} of ${this.grid}.`;
  }

  hide(n) {
    this.hidden = null;
    const before = softmax(this.read(this.seen()).logits), best = before.indexOf(Math.max(...before));
    this.hidden = n;
    this.update();
    say("hidden", n === null ? "Nothing is hidden." : `With this patch hidden: ${best} falls from ${percent(before[best])} to ${percent(this.probabilities[best])}; it reads ${this.best}.`.replace("falls", this.probabilities[best] > before[best] ? "rises" : "falls"));
  }

  stroke(from, to) {
    this.is_example = false;
    const steps = Math.ceil(2 * Math.hypot(to.x - from.x, to.y - from.y)) || 1;
    for (let s = 0; s <= steps; s++) {
      const x = from.x + ((to.x - from.x) * s) / steps, y = from.y + ((to.y - from.y) * s) / steps;
      for (let row = Math.max(0, Math.floor(y - 3)); row < Math.min(FIELD, y + 3); row++)
        for (let column = Math.max(0, Math.floor(x - 3)); column < Math.min(FIELD, x + 3); column++) {
          const near = 1.9 - Math.hypot(column + 0.5 - x, row + 0.5 - y), n = row * FIELD + column;
          this.ink[n] = Math.max(this.ink[n], Math.min(1, Math.max(0, near)));
        }
    }
  }

  draw_field() {
    const canvas = find("draw");
    draw_picture(canvas, this.ink, FIELD);
    if (document.activeElement !== canvas) return;
    const context = canvas.getContext("2d"), zoom = canvas.width / FIELD;
    context.strokeStyle = this.pen.down ? "#ff8c00" : "#4fc3ff";
    context.lineWidth = 2;
    context.beginPath();
    context.arc(this.pen.x * zoom, this.pen.y * zoom, zoom, 0, 7);
    context.stroke();
  }

  clear() {
    this.ink.fill(0);
    [this.hidden, this.is_example] = [null, false];
    this.update();
  }

  take_example(n) {
    this.ink = digit_of(this.packed.input, n);
    [this.hidden, this.is_example] = [null, true];
    this.update();
  }

  listen() {
    const field = find("draw"), seen = find("seen"), { labels } = this.packed.input;
    find("example").append(...labels.map((label, n) => element("option", { value: n }, `a ${label}`)));
    find("example").addEventListener("change", (event) => this.take_example(Number(event.target.value)));
    find("clear").addEventListener("click", () => this.clear());
    find("center").addEventListener("change", () => this.update());
    const place = (event, canvas, size) => {
      const box = canvas.getBoundingClientRect();
      return { x: ((event.clientX - box.left) / box.width) * size, y: ((event.clientY - box.top) / box.height) * size };
    };
    let last = null;
    field.addEventListener("pointerdown", (event) => {
      field.setPointerCapture(event.pointerId);
      if (this.is_example) this.ink.fill(0);
      last = place(event, field, FIELD);
      this.stroke(last, last);
      this.update();
    });
    field.addEventListener("pointermove", (event) => {
      if (last === null) return;
      const next = place(event, field, FIELD);
      this.stroke(last, next);
      last = next;
      this.update();
    });
    for (const end of ["pointerup", "pointercancel"]) field.addEventListener(end, () => { last = null; });
    for (const change of ["focus", "blur"]) field.addEventListener(change, () => this.draw_field());
    field.addEventListener("keydown", (event) => this.steer_pen(event));
    seen.addEventListener("pointermove", (event) => {
      const { x, y } = place(event, seen, this.grid);
      this.choose(Math.min(this.grid - 1, Math.floor(y)), Math.min(this.grid - 1, Math.floor(x)));
    });
    seen.addEventListener("click", () => this.hide(this.hidden === this.chosen ? null : this.chosen));
    seen.addEventListener("keydown", (event) => this.steer_patch(event));
  }

  choose(row, column) {
    const n = Math.min(this.grid - 1, Math.max(0, row)) * this.grid + Math.min(this.grid - 1, Math.max(0, column));
    if (n !== this.chosen) {
      this.chosen = n;
      this.look();
    }
  }

  steer_pen(event) {
    const step = STEPS[event.key];
    if (step) {
      const from = { ...this.pen };
      this.pen.x = Math.min(FIELD - 1, Math.max(1, from.x + step[0]));
      this.pen.y = Math.min(FIELD - 1, Math.max(1, from.y + step[1]));
      if (this.pen.down) this.stroke(from, this.pen);
    } else if (event.key === " ") {
      if (this.is_example) this.clear();
      this.pen.down = !this.pen.down;
      if (this.pen.down) this.stroke(this.pen, this.pen);
    } else if (event.key === "Delete") this.ink.fill(0);
    else return;
    event.preventDefault();
    this.update();
  }

  steer_patch(event) {
    const step = STEPS[event.key], at = this.chosen ?? 0;
    if (step) this.choose(Math.floor(at / this.grid) + step[1], (at % this.grid) + step[0]);
    else if (event.key === " ") this.hide(this.hidden === this.chosen ? null : this.chosen);
    else return;
    event.preventDefault();
  }

  // torch's own logits of the examples came with the model.
  show_check() {
    const { torch, input } = this.packed;
    const apart = torch.flatMap((logits, n) => Array.from(this.read(this.seen(digit_of(input, n), false)).logits, (z, k) => Math.abs(z - logits[k])));
    find("check").textContent = `Beside torch: on ${torch.length} test digits no logit is further than ${Math.max(...apart).toExponential(1)} from that of torch with the weights as they were trained. ${rounding(this.packed)}`;
  }
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const column_means = (map) => Array.from({ length: map.columns }, (_, j) => Array.from({ length: map.rows }, (_, i) => map.get(i, j)).reduce((a, b) => a + b) / map.rows);

function digit_of({ examples }, n) {
  const bytes = atob(examples);
  return Float32Array.from({ length: FIELD * FIELD }, (_, p) => bytes.charCodeAt(n * FIELD * FIELD + p) / 255);
}

function pooled_to(pixels, size) {
  const square = FIELD / size, pooled = new Float32Array(size * size);
  pixels.forEach((value, p) => { pooled[Math.floor(p / FIELD / square) * size + Math.floor((p % FIELD) / square)] += value / square ** 2; });
  return pooled;
}

// As MNIST was made: the strokes fill a square of 20, and their centre of mass stands in the middle.
function centered(ink) {
  let [left, right, top, bottom, mass, x, y] = [FIELD, -1, FIELD, -1, 0, 0, 0];
  ink.forEach((value, p) => {
    const [row, column] = [Math.floor(p / FIELD), p % FIELD];
    if (value > 0.1) [left, right, top, bottom] = [Math.min(left, column), Math.max(right, column), Math.min(top, row), Math.max(bottom, row)];
    [mass, x, y] = [mass + value, x + value * column, y + value * row];
  });
  if (right < 0) return ink;
  const zoom = 20 / Math.max(right - left + 1, bottom - top + 1), [middle_x, middle_y] = [x / mass, y / mass];
  const at = (row, column) => (row < 0 || column < 0 || row >= FIELD || column >= FIELD ? 0 : ink[row * FIELD + column]);
  return Float32Array.from({ length: FIELD * FIELD }, (_, p) => {
    const row = (Math.floor(p / FIELD) - 13.5) / zoom + middle_y, column = ((p % FIELD) - 13.5) / zoom + middle_x;
    const [r, c] = [Math.floor(row), Math.floor(column)], [down, across] = [row - r, column - c];
    return (1 - down) * ((1 - across) * at(r, c) + across * at(r, c + 1)) + down * ((1 - across) * at(r + 1, c) + across * at(r + 1, c + 1));
  });
}
