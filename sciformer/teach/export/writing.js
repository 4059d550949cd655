// A text is begun, gone on with, and looked at: the page of a character model.
"use strict";

const shown_as = (character) => ({ "\n": "line break", " ": "space" })[character] ?? character;

class TextPage {
  constructor(packed) {
    Object.assign(this, { packed, model: load_model(packed), characters: Array.from(packed.input.vocabulary), asks: null, writing: null });
    find("prompt").value = packed.input.prompt;
    this.model.blocks.forEach((block, layer) => {
      for (let h = 0; h < block.attention.num_heads; h++) find("head").append(element("option", { value: `${layer} ${h}` }, `block ${layer + 1}, head ${h + 1}`));
    });
    this.listen();
    this.show_check();
    this.read();
  }

  // The tokens of a text; characters that the model has never seen are left out, and named.
  encode(text) {
    const known = Array.from(text).filter((character) => this.characters.includes(character));
    const unknown = [...new Set(Array.from(text).filter((character) => !this.characters.includes(character)))];
    say("unknown", unknown.length ? `The model does not know ${unknown.join(" ")}, which are left out.` : "");
    return known.map((character) => this.characters.indexOf(character));
  }
  decode(tokens) { return tokens.map((token) => this.characters[token]).join(""); }

  prompt() {
    const tokens = this.encode(find("prompt").value);
    return tokens.length ? tokens : [Math.max(0, this.characters.indexOf("\n"))];
  }

  choice() {
    const top_k = Number(find("top-k").value);
    return { temperature: Number(find("temperature").value), top_k: top_k >= 1 ? top_k : null, random: seeded(Number(find("seed").value)), use_cache: find("cache").checked };
  }

  // As the reader types: what may come next, and where the last character looks.
  read() {
    this.tokens = this.prompt().slice(-this.model.max_length);
    const { logits, weights } = this.model.forward(this.tokens);
    Object.assign(this, { weights, asks: this.tokens.length - 1 });
    const { temperature, top_k } = this.choice(), last = logits.row(logits.rows - 1);
    const tempered = Array.from(last, (z) => z / Math.max(temperature, 1e-3)), order = [...tempered.keys()].sort((a, b) => last[b] - last[a]);
    const kept = order.slice(0, top_k ?? order.length), odds = softmax(kept.map((token) => tempered[token]));
    draw_bars(find("bars"), kept.slice(0, 10).map((token) => shown_as(this.characters[token])), odds.slice(0, 10), 0);
    say("said", `Likeliest is “${shown_as(this.characters[kept[0]])}”, with ${percent(odds[0])}.`);
    this.look();
  }

  look() {
    const [layer, h] = find("head").value.split(" ").map(Number), row = this.weights[layer][h].row(this.asks), largest = Math.max(...row);
    find("tokens").replaceChildren(...this.tokens.map((token, n) => element("span", {
      class: n === this.asks ? "asks" : null, "data-n": n, style: `background: rgba(255, 140, 0, ${(0.75 * row[n]) / largest})`,
    }, this.characters[token] === "\n" ? "⏎\n" : this.characters[token])));
    const most = Array.from(row.keys()).sort((a, b) => row[b] - row[a]).slice(0, 3);
    const from = this.asks, back = (n) => (n === from ? "itself" : `“${shown_as(this.characters[this.tokens[n]])}”, ${from - n} before`);
    say("looks", `“${shown_as(this.characters[this.tokens[from]])}” looks most at ${most.map((n) => `${back(n)} (${percent(row[n])})`).join("; ")}.`);
  }

  ask(n) {
    this.asks = Math.min(this.tokens.length - 1, Math.max(0, n));
    this.look();
  }

  // A few characters at a time, so that the page stays awake.
  write() {
    const prompt = this.prompt(), count = Number(find("count").value), started = performance.now(), written = [];
    const stream = generate(this.model, prompt, this.choice()), text = find("text"), tail = document.createTextNode("");
    text.replaceChildren(element("span", { class: "prompt" }, this.decode(prompt)), tail);
    const go_on = () => {
      const until = performance.now() + 40;
      while (performance.now() < until && written.length < count) written.push(stream.next().value.token);
      tail.data = this.decode(written);
      const seconds = (performance.now() - started) / 1000;
      if (written.length < count) {
        find("speed").textContent = "";
        this.writing = setTimeout(go_on);
      } else this.stop(`${count} characters in ${seconds.toFixed(1)} s: ${Math.round(count / seconds)} a second.`);
    };
    clearTimeout(this.writing);
    find("stop").disabled = false;
    go_on();
  }

  stop(said = "Stopped.") {
    clearTimeout(this.writing);
    find("stop").disabled = true;
    say("speed", said);
  }

  // Milliseconds for each character behind contexts of several lengths.
  measure() {
    const text = this.tokens, lengths = [16, 32, 64, 128, 256].filter((length) => length < this.model.max_length);
    const prompt = (length) => Array.from({ length }, (_, n) => text[n % text.length]);
    const rows = lengths.map((length) => [`${length} characters`, ...[true, false].map((use_cache) => {
      const stream = generate(this.model, prompt(length), { temperature: 0, use_cache });
      stream.next();
      const started = performance.now(), count = use_cache ? 8 : 2;
      for (let n = 0; n < count; n++) stream.next();
      return `${((performance.now() - started) / count).toFixed(1)} ms`;
    })]);
    draw_table(find("times"), rows, ["behind", "with the cache", "without it"]);
  }

  listen() {
    let waiting = null;
    const soon = () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.read(), 120);
    };
    for (const id of ["prompt", "temperature", "top-k"]) find(id).addEventListener("input", soon);
    find("temperature").addEventListener("input", (event) => { find("temperature-value").textContent = event.target.value; });
    find("head").addEventListener("change", () => this.look());
    find("write").addEventListener("click", () => this.write());
    find("stop").addEventListener("click", () => this.stop());
    find("measure").addEventListener("click", () => this.measure());
    find("tokens").addEventListener("click", (event) => { if (event.target.dataset.n) this.ask(Number(event.target.dataset.n)); });
    find("tokens").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.ask(this.asks + step);
    });
  }

  // torch's own logits after the prompt came with the model.
  show_check() {
    const { logits } = this.model.forward(this.encode(this.packed.input.prompt)), last = logits.row(logits.rows - 1);
    const apart = Math.max(...this.packed.torch.map((z, v) => Math.abs(z - last[v])));
    find("check").textContent = `Beside torch: behind “${this.packed.input.prompt.trim()}” no logit is further than ${apart.toExponential(1)} from that of torch with the weights as they were trained. ${rounding(this.packed)}`;
  }
}
