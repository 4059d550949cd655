// Classic mistakes, each the few lines that somebody once wrote, on models that were trained without them.
"use strict";

const FAULTS = {
  no_root: {
    name: "no 1/√d",
    why: "The scores are √d times as large, and the softmax puts nearly all weight on one token.",
    line: "scores = query @ key.mT",
  },
  wrong_axis: {
    name: "softmax over the wrong axis",
    why: "The weights of a key sum to 1 over the queries, instead of those of a query over the keys. With a causal mask it also sees the future through the sum.",
    line: "weights = scores.softmax(dim=-2)",
  },
  inverted: {
    name: "inverted mask",
    why: "True hides where it should show, as in nn.MultiheadAttention: each character sees only what comes after it.",
    line: "scores.masked_fill(mask, -inf)  # mask is True where a query may attend",
  },
  mask_late: {
    name: "mask after the softmax",
    why: "Hidden weights become 0 after the row was normalized: rows no longer sum to 1, and the first characters hardly get any values.",
    line: "weights = scores.softmax(dim=-1) * mask",
  },
  no_positions: {
    name: "no positions",
    why: "The tokens are a bag: the model cannot know what stood where.",
    line: "x = embedding(tokens)  # and nothing added",
  },
};

// Softmax and average with mistakes; without one it is attend of the forward pass.
function broken_attend(scores, value, attn_mask, on) {
  const seen = attn_mask && on.inverted ? (i, j) => !attn_mask(i, j) : attn_mask;
  const all = on.mask_late ? null : seen;
  let weights = on.wrong_axis ? flipped(masked_softmax(flipped(scores), all && ((j, i) => all(i, j)))) : masked_softmax(scores, all);
  if (on.mask_late && seen) weights = Matrix.of(weights.rows, weights.columns, (i, j) => (seen(i, j) ? weights.get(i, j) : 0));
  return { output: average(weights, value), weights };
}
const pause = () => new Promise((resolve) => setTimeout(resolve));
const flipped = (x) => Matrix.of(x.columns, x.rows, (i, j) => x.get(j, i));

function break_model(model, on) {
  model.sound_positions ??= model.positions;
  model.positions = on.no_positions ? new NoPositions({}) : model.sound_positions;
  for (const { attention } of model.blocks) {
    const score = attention.score;
    score.sound_scale ??= score.scale;
    score.scale = on.no_root ? 1 : score.sound_scale;
    attention.attend = (scores, value, attn_mask) => broken_attend(scores, value, attn_mask, on);
  }
}

class BreakPage {
  constructor(reader, student, digits, text) {
    Object.assign(this, { digits, text, run: 0, reader: load_model(reader), student: load_model(student), characters: Array.from(student.input.vocabulary) });
    find("faults").append(...Object.entries(FAULTS).map(([id, { name }]) => element("label", {}, element("input", { type: "checkbox", id, oninput: () => this.update() }), name)));
    find("lines").append(...Object.values(FAULTS).map(({ name, why, line }) => element("div", {}, element("h3", {}, name), element("p", {}, why), element("pre", {}, line))));
    const pixels = atob(digits.pixels);
    this.images = digits.labels.map((_, n) => Float32Array.from({ length: FIELD * FIELD }, (_, p) => pixels.charCodeAt(n * FIELD * FIELD + p) / 255));
    find("digits").append(...this.images.slice(0, 20).map((image, n) => {
      const canvas = element("canvas", { role: "img", "aria-label": `a ${digits.labels[n]}` });
      draw_picture(canvas, image, FIELD);
      return element("figure", {}, canvas, element("figcaption", {}));
    }));
    this.sound = this.measured({}, () => true);
    this.update();
  }

  on() { return Object.fromEntries(Object.keys(FAULTS).map((id) => [id, find(id).checked])); }

  // In steps, so that the page stays awake, and only as long as it is still wanted.
  async measured(on, wanted) {
    for (const model of [this.reader, this.student]) break_model(model, on);
    const mean = async (part, count) => {
      let sum = 0;
      for (let n = 0; n < count; n++) {
        await pause();
        if (!wanted()) return null;
        sum += part(n);
      }
      return sum / count;
    };
    return { accuracy: await mean((n) => this.reads(n), this.images.length), loss: await mean((n) => this.loss(n), this.chunks()) };
  }

  // A switch that is moved meanwhile starts it anew.
  async update() {
    const run = ++this.run, wanted = () => run === this.run, on = this.on();
    const names = Object.entries(FAULTS).filter(([id]) => on[id]).map(([, { name }]) => name);
    say("said", "Measuring …");
    const sound = await this.sound;
    if (!wanted()) return;
    const now = names.length ? await this.measured(on, wanted) : sound;
    if (!wanted()) return;
    const pair = names.length ? ["as trained", "broken"] : ["as trained"], both = (what) => (names.length ? [sound[what], now[what]] : [sound[what]]);
    draw_bars(find("accuracy"), pair, both("accuracy"), pair.length - 1);
    draw_bars(find("losses"), pair, both("loss"), pair.length - 1, (value) => value.toFixed(2));
    say("said", `${names.length ? `With ${names.join(", ")}` : "Nothing is broken"}: ${percent(now.accuracy)} of the digits are right, and the loss of a character is ${now.loss.toFixed(2)}.`);
    await this.write(wanted);
  }

  reads(n) {
    const { logits } = this.reader.forward(this.images[n]), best = logits.indexOf(Math.max(...logits)), figure = find("digits").children[n];
    if (figure) {
      figure.lastChild.textContent = best === this.digits.labels[n] ? `reads ${best}` : `reads ${best} ✗`;
      figure.className = best === this.digits.labels[n] ? "" : "wrong";
    }
    return best === this.digits.labels[n];
  }

  chunks() { return Math.floor((this.text.length - 1) / this.student.max_length); }
  loss(n) {
    const L = this.student.max_length, tokens = Array.from(this.text, (c) => this.characters.indexOf(c)).slice(n * L, (n + 1) * L + 1);
    const { logits } = this.student.forward(tokens.slice(0, L));
    return tokens.slice(1).reduce((sum, token, l) => sum - Math.log(Math.max(softmax(logits.row(l))[token], 1e-30)), 0) / L;
  }

  async write(wanted) {
    const prompt = Array.from("ROMEO:\n", (c) => this.characters.indexOf(c)), written = [];
    const stream = generate(this.student, prompt, { temperature: 0.8, random: seeded(0), use_cache: false }); // a broken mask would hide in a cache
    for (let n = 0; n < 160; n++) {
      if (n % 4 === 0) await pause();
      if (!wanted()) return;
      written.push(this.characters[stream.next().value.token]);
      find("text").replaceChildren(element("span", { class: "prompt" }, "ROMEO:\n"), written.join(""));
    }
  }
}
