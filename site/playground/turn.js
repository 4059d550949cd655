// The half-turn theorem: a drawing is turned, and two models read it.
"use strict";

// Turned about the middle of the field; by 180° each pixel lands exactly on another.
function turned(ink, degrees) {
  const middle = (FIELD - 1) / 2, cos = Math.cos((degrees * Math.PI) / 180), sin = Math.sin((degrees * Math.PI) / 180);
  const at = (row, column) => (row < 0 || column < 0 || row >= FIELD || column >= FIELD ? 0 : ink[row * FIELD + column]);
  return Float32Array.from({ length: FIELD * FIELD }, (_, p) => {
    const [y, x] = [Math.floor(p / FIELD) - middle, (p % FIELD) - middle];
    const from = [cos * y - sin * x + middle, sin * y + cos * x + middle].map((c) => (Math.abs(c - Math.round(c)) < 1e-9 ? Math.round(c) : c));
    const [r, c] = from.map(Math.floor), [down, across] = [from[0] - r, from[1] - c];
    return (1 - down) * ((1 - across) * at(r, c) + across * at(r, c + 1)) + down * ((1 - across) * at(r + 1, c) + across * at(r + 1, c + 1));
  });
}

class HalfTurn {
  constructor(page, packed) {
    Object.assign(this, { page, packed, model: load_model(packed) });
    page.after = () => this.update();
    find("angle").addEventListener("input", () => this.update());
    find("scan").addEventListener("click", () => this.scan());
    this.update();
    this.scan();
  }

  logits(degrees) {
    const { black, white, size } = this.packed.input, whole = turned(this.page.seen(), degrees);
    const pooled = pooled_to(whole, size).map((value) => black + (white - black) * value);
    return { whole, image: this.page.read(whole).logits, distance: this.model.forward(pooled).logits };
  }

  update() {
    const degrees = Number(find("angle").value), upright = this.logits(0), now = this.logits(degrees);
    find("angle-value").textContent = `${degrees}°`;
    draw_picture(find("turned"), now.whole, FIELD);
    for (const [name, which] of [["turned", "image"], ["distance", "distance"]]) {
      const odds = softmax(now[which]), best = odds.indexOf(Math.max(...odds));
      draw_bars(find(`${name}-bars`), odds.map((_, n) => String(n)), odds, best);
      find(`${name}-said`).textContent = `It reads ${best}, with ${percent(odds[best])}.`;
    }
    const moved = (which) => Math.max(...now[which].map((z, n) => Math.abs(z - upright[which][n])));
    say("theorem", `Turned by ${degrees}°, the image transformer's logits move by up to ${named(moved("image"))}, the distance model's by up to ${moved("distance") < 1e-4 ? moved("distance").toExponential(0) : named(moved("distance"))}.`);
  }

  // How likely what is read upright stays, over a whole turn.
  scan() {
    const reads = (logits) => softmax(logits), upright = this.logits(0), angles = Array.from({ length: 25 }, (_, n) => 15 * n);
    const kept = Object.fromEntries([["image transformer", "image"], ["distance model", "distance"]].map(([name, which]) => {
      const odds = reads(upright[which]);
      return [`${name}: still a ${odds.indexOf(Math.max(...odds))}`, [which, odds.indexOf(Math.max(...odds)), []]];
    }));
    const step = (n) => {
      if (n === angles.length) return draw_curves(find("turns"), Object.fromEntries(Object.entries(kept).map(([name, line]) => [name, line[2]])), { xlabel: "turned by, in degrees", ylabel: "probability" });
      const now = this.logits(angles[n]);
      for (const [which, digit, line] of Object.values(kept)) line.push([angles[n], reads(now[which])[digit]]);
      setTimeout(() => step(n + 1));
    };
    step(0);
  }
}
