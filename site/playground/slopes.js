// Two slopes: causal attention as it is written, and the separable form as a running sum, timed where the page is read.
"use strict";

const D = 16;

const naive = (x) => attend(dot_product_scores(x, x), x, causal_mask(x.rows)).output;

// Output i is the mean of the values up to i under the weights exp(w · tanh(k)): one step for each token, whatever came before.
function running_mean(x, weight) {
  const output = new Matrix(x.rows, D), sum = new Float64Array(D);
  let total = 0;
  for (let i = 0; i < x.rows; i++) {
    const key = x.row(i), mean = output.row(i);
    let score = 0;
    for (let d = 0; d < D; d++) score += weight[d] * Math.tanh(key[d]);
    const share = Math.exp(score);
    total += share;
    for (let d = 0; d < D; d++) mean[d] = (sum[d] += share * key[d]) / total;
  }
  return output;
}

// The least of several times, since whatever disturbs only adds.
function seconds(call) {
  call();
  let least = Infinity;
  const until = performance.now() + 120;
  do {
    const started = performance.now();
    let calls = 0;
    do { call(); calls++; } while (performance.now() - started < 4); // clocks of browsers are coarse
    least = Math.min(least, (performance.now() - started) / calls);
  } while (performance.now() < until);
  return least / 1000;
}

// Of the line through the longer half, by least squares.
function slope(line) {
  const points = line.slice(Math.floor(line.length / 2)).map(([x, y]) => [Math.log(x), Math.log(y)]);
  const [mx, my] = [0, 1].map((n) => points.reduce((sum, p) => sum + p[n], 0) / points.length);
  return points.reduce((sum, [x, y]) => sum + (x - mx) * (y - my), 0) / points.reduce((sum, [x]) => sum + (x - mx) ** 2, 0);
}

class SlopesPage {
  constructor(recorded) {
    this.lengths = (longest) => Array.from({ length: Math.log2(longest) - 4 }, (_, n) => 32 * 2 ** n);
    const counted = this.lengths(4096);
    draw_curves(find("memory"), { "every weight, slope 2": counted.map((n) => [n, (4 * n * n) / 1e6]), "a running sum, slope 1 with its outputs": counted.map((n) => [n, (4 * n * D) / 1e6]) }, { xlabel: "tokens", ylabel: "megabytes", log: true });
    find("recorded").textContent = `Recorded on ${recorded.machine}, ${recorded.date}: one attention layer, forward and backward pass.`;
    draw_curves(find("torch-time"), recorded.time, { xlabel: "tokens", ylabel: "milliseconds", log: true, marks: true });
    draw_curves(find("torch-memory"), recorded.memory, { xlabel: "tokens", ylabel: "MB at most", log: true, marks: true });
    find("measure").addEventListener("click", () => this.measure(Number(find("longest").value)));
    this.measure(512);
  }

  async measure(longest) {
    const random = seeded(0), weight = Float32Array.from({ length: D }, () => random() - 0.5);
    const lines = { "all pairs": [], "running sum": [] };
    find("measure").disabled = true;
    for (const length of this.lengths(longest)) {
      say("said", `Measuring ${length} tokens …`);
      await new Promise((resolve) => setTimeout(resolve, 20));
      const x = Matrix.of(length, D, () => 2 * random() - 1);
      lines["all pairs"].push([length, 1000 * seconds(() => naive(x))]);
      lines["running sum"].push([length, 1000 * seconds(() => running_mean(x, weight))]);
    }
    find("measure").disabled = false;
    draw_curves(find("time"), lines, { xlabel: "tokens", ylabel: "milliseconds", log: true, marks: true });
    draw_table(find("times"), lines["all pairs"].map(([length, ms], n) => [length, ms.toFixed(3), lines["running sum"][n][1].toFixed(4)]), ["tokens", "all pairs, ms", "running sum, ms"]);
    say("said", `Slopes on this machine: ${slope(lines["all pairs"]).toFixed(2)} for all pairs, ${slope(lines["running sum"]).toFixed(2)} for the running sum, over the longer half of the lengths up to ${longest}.`);
  }
}
