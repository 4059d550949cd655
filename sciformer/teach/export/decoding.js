// How a model comes out of the page that carries it, and how a character model writes, as models/decoding.py has it.
"use strict";

// One token from a row of logits; `random` gives numbers in [0, 1).
function sample(logits, { temperature = 1, top_k = null, random = Math.random } = {}) {
  const likeliest = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
  if (temperature === 0) return likeliest[0];
  const kept = likeliest.slice(0, top_k ?? logits.length);
  const odds = kept.map((token) => Math.exp((logits[token] - logits[likeliest[0]]) / temperature));
  let left = random() * odds.reduce((sum, p) => sum + p, 0);
  return kept[Math.max(0, odds.findIndex((p) => (left -= p) < 0))];
}

// Random numbers that a seed repeats on every machine (mulberry32, Tommy Ettinger).
function seeded(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Goes on from a prompt and yields, one by one, each new token and where it looked. When max_length tokens are reached,
// the older half of them is forgotten. Without a cache, all that is in sight is computed again for each token.
function* generate(model, prompt, { use_cache = true, ...choice } = {}) {
  const tokens = Array.from(prompt);
  let seen = tokens.slice(-model.max_length), fresh = seen, cache = new Cache(model.max_length);
  for (;;) {
    const { logits, weights } = model.forward(use_cache ? fresh : seen, { cache: use_cache ? cache : null });
    const token = sample(logits.row(logits.rows - 1), choice);
    tokens.push(token);
    yield { token, seen, logits: logits.row(logits.rows - 1), weights };
    [seen, fresh] = [[...seen, token], [token]];
    if (seen.length > model.max_length) {
      cache = new Cache(model.max_length);
      seen = fresh = tokens.slice(-Math.max(1, Math.floor(model.max_length / 2)));
    }
  }
}

// ---- from the page to a model --------------------------------------------------------------------------------------

function half_precision(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

// A matrix, or a plain array where the model has a vector; int8 has a scale for each row.
function tensor({ dtype, shape, start, scales }, bytes) {
  const size = shape.reduce((product, n) => product * n, 1), columns = shape[shape.length - 1];
  const from = (Type, at, length) => new Type(bytes.slice(at, at + length * Type.BYTES_PER_ELEMENT));
  let data;
  if (dtype === "float32") data = from(Float32Array, start, size);
  if (dtype === "float16") data = Float32Array.from(from(Uint16Array, start, size), half_precision);
  if (dtype === "int8") {
    const row_scales = from(Float32Array, scales, size / columns);
    data = Float32Array.from(from(Int8Array, start, size), (n, i) => n * row_scales[Math.floor(i / columns)]);
  }
  return shape.length === 1 ? data : new Matrix(size / columns, columns, data);
}

const KINDS = {
  ImageTransformer, CharTransformer, ImageToSequence, Classifier, TransformerBlock, MultiHeadAttention, FeedForward,
  TokenShift, Linear, Identity, LayerNorm, RMSNorm, GELU, ReLU, SquaredReLU, LearnedPositions, SinusoidalPositions, NoPositions, DotProductScore, DistanceBiasedScore,
  AdditiveScore, SeparableAdditiveScore, EnergyWellScore, RotaryScore, NormalizedScore,
};

function load_model({ model, tensors, bytes }) {
  const buffer = Uint8Array.from(atob(bytes), (character) => character.charCodeAt(0)).buffer;
  const weights = tensors.map((described) => tensor(described, buffer));
  const build = (part, path) => {
    if (Array.isArray(part)) return part.map((one, n) => build(one, `${path}.${n}`));
    if (part === null || typeof part !== "object") return part;
    if ("tensor" in part) return weights[part.tensor];
    const { kind, ...fields } = part;
    const built = Object.entries(fields).map(([name, field]) => [name, build(field, `${path}.${name}`)]);
    return new KINDS[kind]({ path, ...Object.fromEntries(built) });
  };
  return build(model, "model");
}
