"use strict";
/* A mixture of Gaussians: conditionals and densities in closed form. Arrays are flat, component by component. */

const LOG_2PI = Math.log(2 * Math.PI);

function decode(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

class Mixture {
  constructor(facts) {
    this.k = facts.k;
    this.d = facts.d;
    this.weights = decode(facts.weights);
    this.means = decode(facts.means);
    this.packed = decode(facts.covariances);
    this.lines = (this.d * (this.d + 1)) / 2;
  }

  covariance(j, a, b) {
    const [high, low] = a > b ? [a, b] : [b, a];
    return this.packed[j * this.lines + (high * (high + 1)) / 2 + low];
  }
}

/* What does not depend on the values of the given coordinates: gains, covariances of the free ones, determinants. */
class Slice {
  constructor(mixture, given, errors) {
    this.mixture = mixture;
    this.given = given;
    this.free = [...Array(mixture.d).keys()].filter((a) => !given.includes(a));
    const [k, g, f] = [mixture.k, given.length, this.free.length];
    this.root = new Float64Array(k * g * g); // Cholesky factor of the given coordinates' covariance with their noise
    this.gain = new Float64Array(k * g * f); // its inverse times the covariance of given and free
    this.covariances = new Float64Array(k * f * f);
    this.logScale = new Float64Array(k);
    this.singular = -1;
    for (let j = 0; j < k; j++) this.prepare(j, errors);
  }

  prepare(j, errors) {
    const { mixture, given, free } = this;
    const [g, f] = [given.length, free.length];
    const L = this.root.subarray(j * g * g, (j + 1) * g * g);
    const W = this.gain.subarray(j * g * f, (j + 1) * g * f);
    let logDet = 0;
    for (let a = 0; a < g; a++) {
      for (let b = 0; b <= a; b++) {
        let sum = mixture.covariance(j, given[a], given[b]) + (a === b ? errors[a] * errors[a] : 0);
        for (let c = 0; c < b; c++) sum -= L[a * g + c] * L[b * g + c];
        if (a > b) L[a * g + b] = sum / L[b * g + b];
        else if (sum > 0) L[a * g + a] = Math.sqrt(sum);
        else this.singular = j;
      }
      logDet += 2 * Math.log(L[a * g + a]);
      for (let e = 0; e < f; e++) {
        let sum = mixture.covariance(j, given[a], free[e]);
        for (let c = 0; c < a; c++) sum -= L[a * g + c] * W[c * f + e];
        W[a * f + e] = sum / L[a * g + a];
      }
    }
    this.logScale[j] = Math.log(mixture.weights[j]) - 0.5 * (logDet + g * LOG_2PI);
    for (let a = 0; a < f; a++) {
      for (let b = 0; b < f; b++) {
        let sum = mixture.covariance(j, free[a], free[b]);
        for (let c = 0; c < g; c++) sum -= W[c * f + a] * W[c * f + b];
        this.covariances[j * f * f + a * f + b] = a === b ? Math.max(sum, 0) : sum;
      }
    }
  }

  /* The conditional mixture at the values of the given coordinates, in their order. */
  at(values) {
    const { mixture, given, free } = this;
    const [k, g, f] = [mixture.k, given.length, free.length];
    const weights = new Float64Array(k);
    const means = new Float64Array(k * f);
    const z = new Float64Array(g);
    let highest = -Infinity;
    for (let j = 0; j < k; j++) {
      const L = this.root.subarray(j * g * g, (j + 1) * g * g);
      let distance = 0;
      for (let a = 0; a < g; a++) {
        let sum = values[a] - mixture.means[j * mixture.d + given[a]];
        for (let c = 0; c < a; c++) sum -= L[a * g + c] * z[c];
        z[a] = sum / L[a * g + a];
        distance += z[a] * z[a];
      }
      weights[j] = this.logScale[j] - 0.5 * distance;
      highest = Math.max(highest, weights[j]);
      for (let e = 0; e < f; e++) {
        let sum = mixture.means[j * mixture.d + free[e]];
        for (let c = 0; c < g; c++) sum += this.gain[(j * g + c) * f + e] * z[c];
        means[j * f + e] = sum;
      }
    }
    let total = 0;
    for (let j = 0; j < k; j++) total += weights[j] = Math.exp(weights[j] - highest);
    for (let j = 0; j < k; j++) weights[j] /= total;
    return new Conditional(this, weights, means, highest + Math.log(total));
  }
}

class Conditional {
  constructor(slice, weights, means, logDensity) {
    Object.assign(this, { weights, means, logDensity, free: slice.free, covariances: slice.covariances });
    this.k = weights.length;
    this.f = slice.free.length;
  }

  /* Mean and standard deviation of a free coordinate. */
  moments(coordinate) {
    const [e, f] = [this.free.indexOf(coordinate), this.f];
    let mean = 0;
    for (let j = 0; j < this.k; j++) mean += this.weights[j] * this.means[j * f + e];
    let variance = 0;
    for (let j = 0; j < this.k; j++) {
      const away = this.means[j * f + e] - mean;
      variance += this.weights[j] * (this.covariances[j * f * f + e * f + e] + away * away);
    }
    return { mean, sd: Math.sqrt(variance) };
  }

  /* Component j in two free coordinates. */
  pair(j, x, y) {
    const [a, b, f] = [this.free.indexOf(x), this.free.indexOf(y), this.f];
    const V = this.covariances.subarray(j * f * f, (j + 1) * f * f);
    return { weight: this.weights[j], mx: this.means[j * f + a], my: this.means[j * f + b],
             xx: V[a * f + a], xy: V[a * f + b], yy: V[b * f + b] };
  }

  /* The density of two free coordinates at a point, and the component most likely to be behind it. */
  density(x, y, px, py) {
    let [total, best, likeliest] = [0, -1, 0];
    for (let j = 0; j < this.k; j++) {
      const c = this.pair(j, x, y);
      const [dx, dy, det] = [px - c.mx, py - c.my, c.xx * c.yy - c.xy * c.xy];
      const q = (c.yy * dx * dx - 2 * c.xy * dx * dy + c.xx * dy * dy) / det;
      const p = (c.weight * Math.exp(-0.5 * q)) / (2 * Math.PI * Math.sqrt(det));
      total += p;
      if (p > best) [best, likeliest] = [p, j];
    }
    return { density: total, likeliest };
  }

  /* The density of one free coordinate at n points, times the width of a step: what has no width fills one step. */
  line(coordinate, low, high, n, components = Array(this.k).keys()) {
    const [e, f, step] = [this.free.indexOf(coordinate), this.f, (high - low) / n];
    const values = new Float64Array(n);
    for (const j of components) {
      const variance = this.covariances[j * f * f + e * f + e] / (step * step) + BLUR;
      const height = this.weights[j] / Math.sqrt(2 * Math.PI * variance);
      if (height < 1e-9) continue;
      along(values, 0, n, height, (this.means[j * f + e] - low) / step - 0.5, 1 / variance, 40);
    }
    return values;
  }

  /* The density of two free coordinates in n x m cells, relative to the area of a cell, rows from the top. */
  grid(x, y, view, n, m) {
    const values = new Float32Array(n * m);
    const [sx, sy] = [(view.x[1] - view.x[0]) / n, (view.y[1] - view.y[0]) / m];
    const parts = [];
    let highest = 0;
    for (let j = 0; j < this.k; j++) {
      const c = this.pair(j, x, y);
      const [xx, xy, yy] = [c.xx / (sx * sx) + BLUR, -c.xy / (sx * sy), c.yy / (sy * sy) + BLUR];
      const det = xx * yy - xy * xy;
      if (!(det > 0)) continue;
      const height = c.weight / (2 * Math.PI * Math.sqrt(det));
      highest = Math.max(highest, height);
      const [mx, my] = [(c.mx - view.x[0]) / sx - 0.5, (view.y[1] - c.my) / sy - 0.5];
      parts.push([height, mx, my, yy / det, xy / yy, yy]);
    }
    for (const [height, mx, my, precision, slope, yy] of parts) {
      const reach = 2 * Math.log(height / (highest * FAINTEST)); // squared distance beyond which nothing is seen
      if (!(reach > 0)) continue;
      const tall = Math.sqrt(reach * yy);
      const last = Math.min(m - 1, Math.floor(my + tall));
      for (let i = Math.max(0, Math.ceil(my - tall)); i <= last; i++) {
        const away = i - my;
        const used = (away * away) / yy;
        along(values, i * n, n, height * Math.exp(-0.5 * used), mx + slope * away, precision, reach - used);
      }
    }
    return values;
  }
}

const BLUR = 0.15; // variance added, in cells: what is narrower than a cell is still seen
const FAINTEST = 1e-6; // of the highest component

/* Add height * exp(-precision (i - middle)^2 / 2) to n values from an offset, where the exponent's square is in reach.
   Outwards from the middle every value is the last times a ratio, and every ratio the last times a constant. */
function along(values, offset, n, height, middle, precision, reach) {
  const half = Math.sqrt(reach / precision);
  const low = Math.max(0, Math.ceil(middle - half));
  const high = Math.min(n - 1, Math.floor(middle + half));
  if (low > high) return;
  const start = Math.min(high, Math.max(low, Math.round(middle)));
  const away = start - middle;
  const value = height * Math.exp(-0.5 * precision * away * away);
  const change = Math.exp(-precision);
  let [v, ratio] = [value, Math.exp(-precision * (away + 0.5))];
  values[offset + start] += v;
  for (let i = offset + start + 1; i <= offset + high; i++) {
    v *= ratio;
    ratio *= change;
    values[i] += v;
  }
  [v, ratio] = [value, Math.exp(precision * (away - 0.5))];
  for (let i = offset + start - 1; i >= offset + low; i--) {
    v *= ratio;
    ratio *= change;
    values[i] += v;
  }
}
