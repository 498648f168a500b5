/* Pictures: colours by the probability that is enclosed, contours, axes, curves. */

const PALETTES = {
  light: ["#ffffff", "#e3eef9", "#bcd7ef", "#7fb5de", "#4292c6", "#1f6db1", "#0b4a8f", "#08264f"],
  dark: ["#10151d", "#132a45", "#16456b", "#1b6a94", "#2f94ad", "#69bfb4", "#b8e0b4", "#fbf7c8"],
};
const ENCLOSED = [0.39, 0.68, 0.95, 0.99]; // contours
const STEPS = 1024; // of the logarithm of the density
const DEPTH = 16; // how far below the highest value the steps go, in e-foldings

function table(theme) {
  const stops = PALETTES[theme].map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
  const colours = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const [a, b, t] = [stops[Math.floor(at)], stops[Math.ceil(at)], at % 1];
    const [red, green, blue] = [0, 1, 2].map((c) => Math.round(a[c] + t * (b[c] - a[c])));
    colours[i] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return colours;
}

/* For each step down from the highest value, the share of the whole that lies above. */
function enclosing(values) {
  let highest = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > highest) highest = values[i];
  const mass = new Float64Array(STEPS + 1);
  const step = new Uint16Array(values.length);
  const scale = STEPS / DEPTH;
  let total = 0;
  for (let i = 0; i < values.length; i++) {
    const at = values[i] > 0 ? Math.min(STEPS, Math.floor(-Math.log(values[i] / highest) * scale)) : STEPS;
    step[i] = at;
    mass[at] += values[i];
    total += values[i];
  }
  for (let s = 0, above = 0; s <= STEPS; s++) {
    above += mass[s];
    mass[s] = total > 0 ? Math.min(1, above / total) : 1;
  }
  const level = (share) => highest * Math.exp(-(mass.findIndex((m) => m >= share) + 0.5) / scale);
  return { step, inside: mass, levels: total > 0 ? ENCLOSED.map(level) : [], empty: !(total > 0) };
}

function paint(context, values, n, m, colours) {
  const found = enclosing(values);
  const image = context.createImageData(n, m);
  const pixels = new Uint32Array(image.data.buffer);
  const shade = new Uint32Array(STEPS + 1);
  for (let s = 0; s <= STEPS; s++) shade[s] = colours[Math.round(255 * Math.pow(1 - found.inside[s], 0.8))];
  for (let i = 0; i < pixels.length; i++) pixels[i] = found.empty ? colours[0] : shade[found.step[i]];
  context.putImageData(image, 0, 0);
  return found.levels;
}

/* Marching squares: segments between cell centres, with the crossing interpolated; a to d go round the square. */
function contour(context, values, n, m, level, box) {
  const [sx, sy] = [box.w / n, box.h / m];
  const points = new Float64Array(8);
  for (let j = 0; j < m - 1; j++) {
    const y = box.y + (j + 0.5) * sy;
    for (let i = 0, o = j * n; i < n - 1; i++, o++) {
      const [inA, inB] = [values[o] >= level, values[o + 1] >= level];
      const [inC, inD] = [values[o + n + 1] >= level, values[o + n] >= level];
      if (inA === inB && inB === inC && inC === inD) continue;
      const x = box.x + (i + 0.5) * sx;
      const [a, b, c, d] = [values[o], values[o + 1], values[o + n + 1], values[o + n]];
      let count = 0;
      const add = (px, py) => {
        points[count++] = px;
        points[count++] = py;
      };
      if (inA !== inB) add(x + (sx * (level - a)) / (b - a), y);
      if (inB !== inC) add(x + sx, y + (sy * (level - b)) / (c - b));
      if (inC !== inD) add(x + sx - (sx * (level - c)) / (d - c), y + sy);
      if (inD !== inA) add(x, y + sy - (sy * (level - d)) / (a - d));
      for (let p = 0; p < count; p += 4) {
        context.moveTo(points[p], points[p + 1]);
        context.lineTo(points[p + 2], points[p + 3]);
      }
    }
  }
}

function ellipse(context, c, sigma, place) {
  const middle = (c.xx + c.yy) / 2;
  const apart = Math.hypot((c.xx - c.yy) / 2, c.xy);
  const angle = 0.5 * Math.atan2(2 * c.xy, c.xx - c.yy);
  const [major, minor] = [Math.sqrt(middle + apart), Math.sqrt(Math.max(middle - apart, 0))].map((s) => s * sigma);
  for (let i = 0; i <= 72; i++) {
    const t = (i / 72) * 2 * Math.PI;
    const [u, v] = [major * Math.cos(t), minor * Math.sin(t)];
    const [px, py] = place(c.mx + u * Math.cos(angle) - v * Math.sin(angle),
                           c.my + u * Math.sin(angle) + v * Math.cos(angle));
    if (i) context.lineTo(px, py);
    else context.moveTo(px, py);
  }
}

/* Round numbers between two ends, about as many as wanted. */
function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = power * [1, 2, 5, 10].find((s) => s * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(12)));
  const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const plain = Math.abs(low) < 1e6 && Math.abs(high) < 1e6 && places < 7;
  return found.map((value) => ({ value, text: (plain ? value.toFixed(places) : value.toExponential(2)).replace("-", "−") }));
}

/* A canvas as sharp as the screen; its context draws in CSS pixels. */
function sharpen(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(w * ratio)) canvas.width = Math.round(w * ratio);
  if (canvas.height !== Math.round(h * ratio)) canvas.height = Math.round(h * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, w, h);
  return { context, w, h };
}

function stroke(context, colour, width, dash, draw) {
  context.beginPath();
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  draw();
  context.stroke();
  context.setLineDash([]);
}
