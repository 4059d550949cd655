// The forward pass of the course's models, as sciformer/{functional,scores,attention,positions,blocks}.py and models/ have
// it: the same names, one example at a time, and nothing to train. Whoever has read those files will find their way here.
//
// Shape letters: H heads, L queries, S keys, D head_dim, E embed_dim. A mask is a function of a query's and a key's index,
// true where the query may attend; null hides nothing.
"use strict";

// Numbers in rows. A head of an (L, E) matrix is a view of its columns: an (L, D) matrix whose rows stand E apart.
class Matrix {
  constructor(rows, columns, data = new Float32Array(rows * columns), start = 0, stride = columns) {
    Object.assign(this, { rows, columns, data, start, stride });
  }
  static of(rows, columns, entry) {
    const made = new Matrix(rows, columns);
    for (let i = 0, n = 0; i < rows; i++) for (let j = 0; j < columns; j++) made.data[n++] = entry(i, j);
    return made;
  }
  get(i, j) { return this.data[this.start + i * this.stride + j]; }
  row(i) { return this.data.subarray(this.start + i * this.stride, this.start + i * this.stride + this.columns); }
  head(h, head_dim) { return new Matrix(this.rows, head_dim, this.data, this.start + h * head_dim, this.stride); }
}

// Row i of a times row j of b. Four sums at a time, since each addition waits for the one before it.
function dot(a, i, b, j) {
  const x = a.data, y = b.data, end = a.start + i * a.stride + a.columns;
  let p = a.start + i * a.stride, q = b.start + j * b.stride, s = 0, t = 0, u = 0, v = 0;
  for (; p < end - 3; p += 4, q += 4) {
    s += x[p] * y[q]; t += x[p + 1] * y[q + 1]; u += x[p + 2] * y[q + 2]; v += x[p + 3] * y[q + 3];
  }
  for (; p < end; p++, q++) s += x[p] * y[q];
  return s + t + u + v;
}

const add = (x, y) => Matrix.of(x.rows, x.columns, (i, j) => x.get(i, j) + y.get(i, j));

// ---- functional.py -------------------------------------------------------------------------------------------------

// The queries are the last of the keys: with as many of both, the lower triangle.
const causal_mask = (length, key_length = length) => (i, j) => j <= i + key_length - length;

function masked_softmax(scores, attn_mask = null) {
  const weights = new Matrix(scores.rows, scores.columns); // (L, S); a row with nothing to attend to stays 0
  for (let i = 0; i < scores.rows; i++) {
    const row = weights.row(i), seen = (j) => attn_mask === null || attn_mask(i, j);
    let largest = -Infinity, sum = 0;
    for (let j = 0; j < row.length; j++) if (seen(j)) largest = Math.max(largest, scores.get(i, j));
    for (let j = 0; j < row.length; j++) if (seen(j)) sum += row[j] = Math.exp(scores.get(i, j) - largest);
    for (let j = 0; j < row.length; j++) if (row[j]) row[j] /= sum;
  }
  return weights;
}

function attend(scores, value, attn_mask = null) {
  const weights = masked_softmax(scores, attn_mask); // (L, S)
  return { output: average(weights, value), weights }; // (L, D)
}

// weights @ value
function average(weights, value) {
  const output = new Matrix(weights.rows, value.columns);
  for (let i = 0; i < weights.rows; i++) {
    const sum = output.row(i);
    for (let j = 0; j < value.rows; j++) {
      const weight = weights.get(i, j), row = value.row(j);
      if (weight !== 0) for (let d = 0; d < row.length; d++) sum[d] += weight * row[d];
    }
  }
  return output;
}

// A score of every query, row i, with every key, row j.
const pairs = (query, key, score) => Matrix.of(query.rows, key.rows, score); // (L, S)

const dot_product_scores = (query, key, scale = 1 / Math.sqrt(query.columns)) =>
  pairs(query, key, (i, j) => dot(query, i, key, j) * scale);

// strength: the slopes to the left and to the right, and on a grid of rows of `width` tokens above and below.
function distance_biased_scores(query, key, strength, query_offset = 0, width = null) {
  const price = (ahead, side) => (ahead < 0 ? -ahead * strength[side] : ahead * strength[side + 1]);
  const penalty = width === null
    ? (i, j) => price(j - i, 0)
    : (i, j) => price((j % width) - (i % width), 0) + price(Math.floor(j / width) - Math.floor(i / width), 2);
  const scale = 1 / Math.sqrt(query.columns);
  return pairs(query, key, (i, j) => dot(query, i, key, j) * scale - penalty(i + query_offset, j));
}

function additive_scores(query, key, weight) {
  return pairs(query, key, (i, j) => {
    const q = query.row(i), k = key.row(j);
    let score = 0;
    for (let d = 0; d < q.length; d++) score += weight[d] * Math.tanh(q[d] + k[d]);
    return score;
  });
}

function separable_additive_scores(query, key, weight) {
  const of_row = (row) => row.reduce((sum, c, d) => sum + weight[d] * Math.tanh(c), 0);
  const term = (x) => Array.from({ length: x.rows }, (_, i) => of_row(x.row(i)));
  const from_query = term(query), from_key = term(key);
  return pairs(query, key, (i, j) => from_query[i] + from_key[j]);
}

// Within twice the rounding error of float32 the squared distance is 0, as in the core.
function squared_distances(query, key) {
  const ROUNDING = 4 * Math.sqrt(query.columns) * 2 ** -23;
  return pairs(query, key, (i, j) => {
    const q = query.row(i), k = key.row(j);
    let squared = 0;
    for (let d = 0; d < q.length; d++) squared += (q[d] - k[d]) ** 2;
    return squared <= ROUNDING * dot(query, i, query, i) ? 0 : squared;
  });
}

// The logarithm of each well's energy, as a function of d². `weight` is the key's own, `total` the sum over visible keys.
const WELLS = {
  gaussian: (squared, { alpha }) => -alpha * squared,
  inverse_square: (squared, { weight, eps }) => Math.log(weight / (squared + eps)),
  softmax_exponential: (squared, { alpha, total }) => -alpha * Math.sqrt(squared) - Math.log(total),
  lorentzian: (squared, { weight, alpha }) => Math.log(weight / (1 + alpha * squared)),
};

function energy_well_scores(query, key, well, { form = "gradient", alpha = 1, eps = 1e-6, weight = null, attn_mask = null }) {
  const squared = squared_distances(query, key), totals = new Float64Array(query.rows).fill(1);
  if (well === "softmax_exponential") { // its sum leaves out hidden keys; a causal query would see the future in it
    const visible = (i, j) => attn_mask === null || attn_mask(i, j);
    const share = pairs(query, key, (i, j) => (visible(i, j) ? Math.exp(-alpha * Math.sqrt(squared.get(i, j))) : 0));
    totals.forEach((_, i) => { totals[i] = share.row(i).reduce((sum, energy) => sum + energy, 0); });
  }
  return pairs(query, key, (i, j) => {
    const d2 = squared.get(i, j);
    const log_energy = WELLS[well](d2, { alpha, eps, weight: weight === null ? 1 : weight[j], total: totals[i] || 1 });
    return form === "field" ? log_energy : -Math.sqrt(d2) * Math.exp(log_energy);
  });
}

// Rotary positions: features m and m + D/2 turn by the angle t · base^(-2m/D), where t is the position.
function rotate(x, offset = 0, base = 10000) {
  const half = x.columns / 2, turned = new Matrix(x.rows, x.columns);
  for (let t = 0; t < x.rows; t++) {
    const from = x.row(t), to = turned.row(t);
    for (let m = 0; m < half; m++) {
      const angle = (offset + t) * base ** (-m / half), cos = Math.cos(angle), sin = Math.sin(angle);
      to[m] = from[m] * cos - from[m + half] * sin;
      to[m + half] = from[m] * sin + from[m + half] * cos;
    }
  }
  return turned;
}

// ---- modules: each holds what the exported model holds, under the same names ---------------------------------------

class Module {
  constructor(parts) { Object.assign(this, parts); }
}
class Linear extends Module {
  forward(x) { // (L, in) -> (L, out)
    const y = new Matrix(x.rows, this.weight.rows);
    for (let l = 0, n = 0; l < x.rows; l++)
      for (let o = 0; o < y.columns; o++, n++) y.data[n] = dot(x, l, this.weight, o) + (this.bias ? this.bias[o] : 0);
    return y;
  }
}
class Identity extends Module {
  forward(x) { return x; }
}

// Brings each row to a common scale: about its mean, or about 0.
function normalized(x, centered, eps, weight, bias) {
  const y = new Matrix(x.rows, x.columns), E = x.columns;
  for (let l = 0; l < x.rows; l++) {
    const from = x.row(l), to = y.row(l), mean = centered ? from.reduce((sum, c) => sum + c, 0) / E : 0;
    const scale = 1 / Math.sqrt(from.reduce((sum, c) => sum + (c - mean) ** 2, 0) / E + eps);
    for (let e = 0; e < E; e++) to[e] = (from[e] - mean) * scale * (weight ? weight[e] : 1) + (bias ? bias[e] : 0);
  }
  return y;
}
class LayerNorm extends Module {
  forward(x) { return normalized(x, true, this.eps, this.weight, this.bias); }
}
class RMSNorm extends Module {
  forward(x) { return normalized(x, false, this.eps, this.weight, null); }
}

// The error function to 1.2e-7 (Press et al., Numerical Recipes, section 6.2).
function erf(x) {
  const t = 1 / (1 + Math.abs(x) / 2);
  const series = [1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277];
  const tail = t * Math.exp(-x * x - 1.26551223 + series.reduceRight((sum, c) => (sum + c) * t, 0));
  return x < 0 ? tail - 1 : 1 - tail;
}
const each = (x, f) => Matrix.of(x.rows, x.columns, (i, j) => f(x.get(i, j)));
class GELU extends Module {
  forward(x) {
    const tanh = (c) => (c / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (c + 0.044715 * c ** 3)));
    return each(x, this.approximate === "tanh" ? tanh : (c) => (c / 2) * (1 + erf(c / Math.SQRT2)));
  }
}
class ReLU extends Module {
  forward(x) { return each(x, (c) => Math.max(c, 0)); }
}
class SquaredReLU extends Module {
  forward(x) { return each(x, (c) => Math.max(c, 0) ** 2); }
}

// A score sees one head. `prepare` changes its queries or keys before they meet; it is called once for each token.
class Score extends Module {
  prepare(x, offset) { return x; }
}
class DotProductScore extends Score {
  forward(query, key) { return dot_product_scores(query, key, this.scale); }
}
class DistanceBiasedScore extends Score {
  forward(query, key, { h, query_offset }) {
    const slopes = Array.from(this.strength.row(h)), strength = slopes.length === 1 ? Array(4).fill(slopes[0]) : slopes;
    return distance_biased_scores(query, key, strength, query_offset, this.width);
  }
}
class AdditiveScore extends Score {
  forward(query, key, { h }) { return additive_scores(query, key, this.weight.row(h)); }
}
class SeparableAdditiveScore extends Score {
  forward(query, key, { h }) { return separable_additive_scores(query, key, this.weight.row(h)); }
}
class EnergyWellScore extends Score {
  forward(query, key, { h, attn_mask }) {
    const { well, form, eps } = this, alpha = this.alpha ?? (this.log_alpha ? Math.exp(this.log_alpha[h]) : 1);
    const own = (j) => (this.importance ? Math.exp(dot(key, j, this.importance, h)) : this.weight ?? 1);
    const weight = Array.from({ length: key.rows }, (_, j) => own(j));
    return energy_well_scores(query, key, well, { form, alpha, eps, weight, attn_mask });
  }
}
class RotaryScore extends Score {
  prepare(x, offset) { return this.score.prepare(rotate(x, offset), offset); }
  forward(query, key, options) { return this.score.forward(query, key, options); }
}
class NormalizedScore extends Score {
  prepare(x, offset) { return this.score.prepare(normalized(x, false, 2 ** -23, null, null), offset); }
  forward(query, key, options) { return this.score.forward(query, key, options); }
}

// What is remembered of the tokens before, so that each is computed once: keys, values and what a token shift looks back at.
class Cache {
  constructor(max_length) { Object.assign(this, { max_length, length: 0, remembered: new Map() }); }
  join(name, fresh) { // the rows remembered under this name, with the new ones behind them
    const old = this.remembered.get(name) ?? new Matrix(0, fresh.columns, new Float32Array(this.max_length * fresh.columns));
    for (let i = 0; i < fresh.rows; i++) old.data.set(fresh.row(i), (old.rows + i) * old.columns);
    const all = new Matrix(old.rows + fresh.rows, old.columns, old.data);
    this.remembered.set(name, all);
    return all;
  }
}

class MultiHeadAttention extends Module {
  attend(scores, value, attn_mask) { return attend(scores, value, attn_mask); }
  forward(x, { attn_mask = null, is_causal = false, cache = null } = {}) {
    const q = this.q_proj.forward(x), k = this.k_proj.forward(x), v = this.v_proj.forward(x); // (L, E)
    const D = q.columns / this.num_heads, query_offset = cache ? cache.length : 0, S = query_offset + x.rows;
    const mask = is_causal ? causal_mask(x.rows, S) : attn_mask, side_by_side = new Matrix(x.rows, q.columns), maps = [];
    for (let h = 0; h < this.num_heads; h++) {
      const query = this.score.prepare(q.head(h, D), query_offset); // (L, D)
      let key = this.score.prepare(k.head(h, D), query_offset), value = v.head(h, D); // (S, D)
      if (cache) [key, value] = [cache.join(`${this.path} key ${h}`, key), cache.join(`${this.path} value ${h}`, value)];
      const scores = this.score.forward(query, key, { h, attn_mask: mask, query_offset }); // (L, S)
      const { output, weights } = this.attend(scores, value, mask);
      for (let l = 0; l < x.rows; l++) side_by_side.row(l).set(output.row(l), h * D);
      maps.push(weights);
    }
    return { output: this.out_proj.forward(side_by_side), weights: maps }; // (L, E), H times (L, S)
  }
}
class FeedForward extends Module {
  forward(x) { return this.down.forward(this.activation.forward(this.up.forward(x))); }
}
class TokenShift extends Module {
  forward(x, cache = null) { // (L, E): each token and, feature by feature, those just before it
    const all = cache ? cache.join(this.path, x) : x, before = all.rows - x.rows, M = this.weight.rows;
    return Matrix.of(x.rows, x.columns, (t, e) => {
      let mixed = x.get(t, e);
      for (let m = 1; m <= Math.min(M, before + t); m++) mixed += this.weight.get(m - 1, e) * all.get(before + t - m, e);
      return mixed;
    });
  }
}
class TransformerBlock extends Module {
  forward(x, options = {}) {
    const shifted = (x, shift) => (shift ? shift.forward(x, options.cache) : x);
    const attention = (x) => this.attention.forward(shifted(x, this.attention_shift), options);
    const feed_forward = (x) => this.feed_forward.forward(shifted(x, this.feed_forward_shift));
    const attended = attention(this.norm_first ? this.attention_norm.forward(x) : x);
    if (this.norm_first) {
      x = add(x, attended.output);
      x = add(x, feed_forward(this.feed_forward_norm.forward(x)));
    } else {
      x = this.attention_norm.forward(add(x, attended.output));
      x = this.feed_forward_norm.forward(add(x, feed_forward(x)));
    }
    return { x, weights: attended.weights };
  }
}

class LearnedPositions extends Module {
  forward(x, offset = 0) { return Matrix.of(x.rows, x.columns, (l, e) => x.get(l, e) + this.table.get(offset + l, e)); }
}
class SinusoidalPositions extends Module {
  forward(x, offset = 0) {
    const angle = (l, e) => (offset + l) / 10000 ** ((e - (e % 2)) / x.columns);
    return Matrix.of(x.rows, x.columns, (l, e) => x.get(l, e) + (e % 2 ? Math.cos(angle(l, e)) : Math.sin(angle(l, e))));
  }
}
class NoPositions extends Identity {}

class ImageToSequence extends Module {
  forward(image) { // (C · height · width) numbers -> (L, E)
    const [channels, height, width] = this.image_shape, size = this.patch_size, grid = width / size;
    const pixel = (patch, p) => { // all of channel 0, row by row, then channel 1
      const channel = Math.floor(p / size ** 2), row = Math.floor(p / size) % size, column = p % size;
      return image[(channel * height + Math.floor(patch / grid) * size + row) * width + (patch % grid) * size + column];
    };
    return this.projection.forward(Matrix.of(grid ** 2, channels * size ** 2, pixel));
  }
}
class Classifier extends Module {
  forward(tokens) { // (L, E) -> K logits
    tokens = this.norm.forward(tokens);
    const asked = this.queries ? this.queries.forward(tokens) : new Matrix(tokens.rows, 1); // (L, M); zeros: the mean
    const weights = masked_softmax(Matrix.of(asked.columns, tokens.rows, (m, l) => asked.get(l, m))); // (M, L)
    return this.linear.forward(new Matrix(1, weights.rows * tokens.columns, average(weights, tokens).data)).row(0);
  }
}
class ImageTransformer extends Module {
  forward(image, options = {}) {
    let x = this.positions.forward(this.to_sequence.forward(image)), weights = [];
    for (const block of this.blocks) {
      const { x: next, weights: heads } = block.forward(x, options);
      [x, weights] = [next, [...weights, heads]];
    }
    return { logits: this.classifier.forward(x), weights }; // K numbers; for each block H times (L, L)
  }
}
class CharTransformer extends Module {
  forward(tokens, { cache = null, ...options } = {}) {
    const embedded = Matrix.of(tokens.length, this.embedding.columns, (l, e) => this.embedding.get(tokens[l], e));
    let x = this.positions.forward(embedded, cache ? cache.length : 0), weights = [];
    for (const block of this.blocks) {
      const { x: next, weights: heads } = block.forward(x, { is_causal: true, ...options, cache });
      [x, weights] = [next, [...weights, heads]];
    }
    if (cache) cache.length += tokens.length;
    return { logits: this.read_out.forward(this.norm.forward(x)), weights }; // (L, V)
  }
}
