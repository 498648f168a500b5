/* The page: its controls, what they change, and drawing when something did. */

const facts = JSON.parse(document.getElementById("facts").textContent);
const mixture = new Mixture(facts);
const $ = (id) => document.getElementById(id);
const GRIDS = [96, 128, 176, 240, 320]; // cells along each side, from coarse to fine
const PAUSE = 60; // milliseconds between changes of the numbers while something moves: laying out text is slow
const BUDGET = 20; // milliseconds of computing that a frame may take while something moves

const state = {
  x: 0,
  y: Math.min(1, mixture.d - 1),
  fixed: facts.labels.map(() => false),
  values: [],
  errors: facts.labels.map(() => 0),
  highlight: -1,
  cursor: null,
  every: false,
  grid: 1,
  whole: false,
};
let [slice, sliceKey, here, everywhere, idle, waiting, toldAt] = [null, "", null, null, 0, false, 0];

const shown = (v) => (Number.isFinite(v) ? String(Number(v.toPrecision(8))).replace("-", "−") : "not defined");
const brief = (v) => String(Number(v.toPrecision(4))).replace("-", "−");
const exact = (made, text, v) => Object.assign(made, { textContent: text, title: shown(v) }); // all digits, when pointed at
const title = (a) => facts.labels[a] + (facts.units[a] ? ` [${facts.units[a]}]` : "");
const theme = () => document.documentElement.dataset.theme;
const NAMES = ["paper", "ink", "ink-soft", "line", "grid", "blue", "fill", "accent", "contour", "series-1", "series-2",
               "series-3", "series-4"];
let [colours, tones] = [table("light"), {}]; // of densities; of the style sheet
const css = (name) => tones[name];

/* A mean and its width to the digits that the width deserves: two of its own. */
function measured(mean, sd) {
  const digits = 1 - Math.floor(Math.log10(Number(sd.toPrecision(2))));
  if (!Number.isFinite(mean) || !(digits >= -6 && digits <= 9)) return [mean, sd].map(brief);
  const unit = Math.pow(10, -digits);
  const text = (v) => (digits > 0 ? v.toFixed(digits) : String(Math.round(v / unit) * unit));
  return [mean, sd].map((v) => text(v).replace(/^-(?=[0.]*$)/, "").replace("-", "−")); // no minus before zero
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/* What is computed */

function given() {
  return [...Array(mixture.d).keys()].filter((a) => state.fixed[a] && a !== state.x && a !== state.y);
}

function compute() {
  const which = given();
  const errors = which.map((a) => state.errors[a]);
  const key = JSON.stringify([which, errors]);
  if (key !== sliceKey) [slice, sliceKey] = [new Slice(mixture, which, errors), key];
  here = slice.at(which.map((a) => state.values[a]));
}

/* Frames: drawn at most once per frame of the screen, finer when nothing moves */

function change() {
  clearTimeout(idle);
  if (!waiting) requestAnimationFrame(() => frame(false));
  waiting = true;
  idle = setTimeout(() => requestAnimationFrame(() => frame(true)), 160);
}

function frame(still) {
  waiting = false;
  const began = performance.now();
  compute();
  const problem = slice.singular >= 0;
  $("problem").hidden = !problem;
  if (problem) {
    $("problem").textContent = `Component ${slice.singular} has no width in the given coordinates: give an error (±).`;
  } else {
    aim(still);
    drawDensity(still ? GRIDS.length - 1 : state.grid);
    if (still || began - toldAt > PAUSE) {
      toldAt = began;
      showNumbers();
      showDetail();
    }
    if (still) listComponents();
  }
  const spent = performance.now() - began;
  if (!still) {
    if (spent > BUDGET && state.grid > 0) state.grid--;
    else if (spent < BUDGET / 4 && state.grid < GRIDS.length - 1) state.grid++;
  }
  $("timing").textContent = `${still ? "drawn" : "moved"} in ${spent.toFixed(1)} ms on ${still ? GRIDS.at(-1) : GRIDS[state.grid]}² cells`;
  document.documentElement.dataset.frames = 1 + Number(document.documentElement.dataset.frames || 0);
}

/* The density */

const view = { box: null, x: [0, 1], y: [0, 1], of: "" };
const ALONG = 480; // steps in which a coordinate's density is looked at
const FRAMED = 0.995; // of the density, between the ends of an axis: the outermost contour has room
const BOXED = 4; // times as long as what would be in view, a background's box is not in view
const LOST = 0.9; // of the density: with less in view, or in view no wider than TINY of it, the view moves there
const TINY = 0.2;

/* The ends between which the density of a coordinate is highest, with some room. */
function frameOf(a) {
  let [low, high] = facts.ranges[a];
  for (let time = 0; time < 2; time++) {
    const [values, step] = [here.line(a, low, high, ALONG), (high - low) / ALONG];
    const total = values.reduce((sum, v) => sum + v, 0);
    const order = [...values.keys()].sort((i, j) => values[j] - values[i]);
    let [inside, first, last] = [0, ALONG, 0];
    for (const i of order) {
      if (!(inside < FRAMED * total)) break;
      inside += values[i];
      [first, last] = [Math.min(first, i), Math.max(last, i)];
    }
    if (last < first) break;
    const room = 0.08 * (last - first + 1) + 1;
    [low, high] = [Math.max(low, low + (first - room) * step), Math.min(high, low + (last + 1 + room) * step)];
  }
  return withBox(a, low, high);
}

/* The ends moved apart to those of a background's box, where that leaves the components some room. */
function withBox(a, low, high) {
  if (!facts.background || !facts.background.low) return [low, high];
  const room = 0.04 * (facts.background.high[a] - facts.background.low[a]);
  const [first, last] = [Math.min(low, facts.background.low[a] - room), Math.max(high, facts.background.high[a] + room)];
  return last - first > BOXED * (high - low) ? [low, high] : [first, last];
}

/* How much of a coordinate's density lies between two ends. */
function share(a, [low, high]) {
  const [from, to] = facts.ranges[a];
  const values = here.line(a, from, to, ALONG);
  const at = (i) => from + ((i + 0.5) * (to - from)) / ALONG;
  let [all, inside] = [0, 0];
  values.forEach((v, i) => { all += v; if (at(i) >= low && at(i) <= high) inside += v; });
  return all > 0 ? inside / all : 1;
}

/* The view: all there is, or where the density is. It follows a density that has left it, when nothing moves. */
function aim(still) {
  const axes = { x: state.x, y: state.y };
  const key = JSON.stringify([axes, state.whole]);
  for (const [name, a] of Object.entries(axes)) {
    if (state.whole) view[name] = facts.ranges[a];
    else if (key !== view.of) view[name] = frameOf(a);
    else if (still) {
      const [frame, now] = [frameOf(a), view[name]];
      if (share(a, now) < LOST || frame[1] - frame[0] < TINY * (now[1] - now[0])) view[name] = frame;
    }
  }
  view.of = key;
}

const buffer = document.createElement("canvas");

function place(x, y) {
  const { box } = view;
  return [box.x + ((x - view.x[0]) / (view.x[1] - view.x[0])) * box.w,
          box.y + ((view.y[1] - y) / (view.y[1] - view.y[0])) * box.h];
}

function drawDensity(level) {
  const { context, w, h } = sharpen($("density"));
  const strip = Math.round(Math.min(84, 0.16 * w));
  view.box = { x: 62, y: strip + 6, w: w - 62 - strip - 8, h: h - strip - 6 - 48 };
  const { box } = view;
  const n = GRIDS[level];
  context.fillStyle = css("paper");
  context.fillRect(box.x, box.y, box.w, box.h);
  if (mixture.d > 1) drawPair(context, n);
  drawStrips(context, strip);
  drawAxes(context, w, h);
}

function drawPair(context, n) {
  const { box } = view;
  const values = here.grid(state.x, state.y, view, n, n);
  buffer.width = buffer.height = n;
  const levels = paint(buffer.getContext("2d"), values, n, n, colours);
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.w, box.h);
  context.clip();
  context.imageSmoothingEnabled = true;
  context.drawImage(buffer, box.x, box.y, box.w, box.h);
  stroke(context, css("contour"), 0.8, [], () => levels.forEach((level) => contour(context, values, n, n, level, box)));
  if (facts.background && facts.background.low) drawBox(context, facts.background);
  if (state.every) drawEvery(context, (j) => ellipse(context, here.pair(j, state.x, state.y), 1, place));
  if (state.highlight >= 0) drawHighlight(context, state.highlight);
  if (state.cursor) drawCursor(context);
  context.restore();
}

/* The box of a uniform background. */
function drawBox(context, { low, high }) {
  const [[x0, y0], [x1, y1]] = [low, high].map((end) => place(end[state.x], end[state.y]));
  stroke(context, css("ink-soft"), 1.2, [7, 4], () => context.rect(x0, y1, x1 - x0, y0 - y1));
}

/* Each component of some weight, as an outline that is as strong as it is heavy. */
function drawEvery(context, outline) {
  const heaviest = Math.max(...here.weights);
  for (let j = 0; j < here.k; j++) {
    const share = here.weights[j] / heaviest;
    if (share < 0.01) continue;
    context.globalAlpha = 0.15 + 0.75 * Math.sqrt(share);
    stroke(context, css("accent"), 0.9, [], () => outline(j));
  }
  context.globalAlpha = 1;
}

function drawHighlight(context, j) {
  const c = here.pair(j, state.x, state.y);
  stroke(context, css("paper"), 4, [], () => ellipse(context, c, 1, place));
  stroke(context, css("accent"), 2.2, [], () => ellipse(context, c, 1, place));
  stroke(context, css("accent"), 1.4, [4, 4], () => ellipse(context, c, 2, place));
  const [px, py] = place(c.mx, c.my);
  context.fillStyle = css("accent");
  context.beginPath();
  context.arc(px, py, 3.5, 0, 2 * Math.PI);
  context.fill();
}

function drawCursor(context) {
  const [px, py] = place(state.cursor[0], state.cursor[1]);
  const { box } = view;
  stroke(context, css("ink-soft"), 0.8, [3, 3], () => {
    context.moveTo(px, box.y);
    context.lineTo(px, box.y + box.h);
    context.moveTo(box.x, py);
    context.lineTo(box.x + box.w, py);
  });
}

/* Densities of each coordinate alone, filled; dashed, without the given values. */
function drawStrips(context, strip) {
  const { box } = view;
  const n = 240;
  const along = (a, range, point) => {
    const now = here.line(a, range[0], range[1], n);
    const any = everywhere.line(a, range[0], range[1], n);
    const top = Math.max(...now, ...any) * 1.05 || 1;
    const path = (values, closed) => {
      values.forEach((v, i) => (i ? context.lineTo(...point((i + 0.5) / n, v / top)) : context.moveTo(...point(0.5 / n, v / top))));
      if (closed) [1 - 0.5 / n, 0.5 / n].forEach((t) => context.lineTo(...point(t, 0)));
    };
    context.beginPath();
    path(now, true);
    context.fillStyle = css("fill");
    context.fill();
    stroke(context, css("blue"), 1.6, [], () => path(now));
    if (given().length) stroke(context, css("ink-soft"), 1, [3, 3], () => path(any));
    return (j) => path(here.line(a, range[0], range[1], n, [j]));
  };
  if (mixture.d > 1) {
    along(state.y, view.y, (t, v) => [box.x + box.w + 5 + v * strip, box.y + (1 - t) * box.h]);
    along(state.x, view.x, (t, v) => [box.x + t * box.w, box.y - 5 - v * strip]);
  } else {
    drawAlone(context, along(state.x, view.x, (t, v) => [box.x + t * box.w, box.y + box.h - v * box.h]));
  }
}

/* Over the density of the only coordinate: its components as curves, and the ends of a uniform background. */
function drawAlone(context, curve) {
  const { box } = view;
  if (state.every) drawEvery(context, curve);
  if (state.highlight >= 0) stroke(context, css("accent"), 2.2, [], () => curve(state.highlight));
  const ends = facts.background && facts.background.low ? [facts.background.low[0], facts.background.high[0]] : [];
  for (const [px] of ends.filter((end) => end >= view.x[0] && end <= view.x[1]).map((end) => place(end, 0)))
    stroke(context, css("ink-soft"), 1.2, [7, 4], () => (context.moveTo(px, box.y), context.lineTo(px, box.y + box.h)));
}

function drawAxes(context, w, h) {
  const { box } = view;
  context.strokeStyle = css("line");
  context.lineWidth = 1;
  context.strokeRect(box.x + 0.5, box.y + 0.5, box.w - 1, box.h - 1);
  context.fillStyle = css("ink-soft");
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  for (const tick of ticks(...view.x, box.w / 90)) {
    const [px] = place(tick.value, 0);
    context.fillRect(px, box.y + box.h, 1, 5);
    context.fillText(tick.text, px, box.y + box.h + 18);
  }
  context.textAlign = "right";
  for (const tick of mixture.d > 1 ? ticks(...view.y, box.h / 60) : []) {
    const [, py] = place(0, tick.value);
    context.fillRect(box.x - 5, py, 5, 1);
    context.fillText(tick.text, box.x - 9, py + 4);
  }
  context.fillStyle = css("ink");
  context.font = "600 13px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText(title(state.x), box.x + box.w / 2, h - 8, box.w);
  if (mixture.d < 2) return;
  context.save();
  context.translate(13, box.y + box.h / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(title(state.y), 0, 0, box.h);
  context.restore();
}

/* Numbers */

function showNumbers() {
  for (let a = 0; a < mixture.d; a++) {
    const row = rows[a];
    const axis = a === state.x ? "x" : a === state.y && mixture.d > 1 ? "y" : "";
    const fixed = given().includes(a);
    row.root.classList.toggle("fixed", fixed);
    row.axis.textContent = axis;
    row.axis.hidden = !axis;
    row.fix.disabled = row.error.disabled = row.slider.disabled = row.number.disabled = Boolean(axis);
    row.fix.checked = fixed;
    const moments = fixed ? null : here.moments(a);
    const texts = moments ? measured(moments.mean, moments.sd) : ["", ""];
    exact(row.mean, texts[0], moments ? moments.mean : NaN);
    exact(row.sd, texts[1], moments ? moments.sd : NaN);
    row.free.hidden = fixed;
    const typed = String(Number(state.values[a].toPrecision(6)));
    if (document.activeElement !== row.number && row.number.value !== typed) row.number.value = typed;
    if (row.slider.valueAsNumber !== state.values[a]) row.slider.value = state.values[a];
  }
  const count = given().length;
  exact($("evidence"), count ? brief(here.logDensity) : "", here.logDensity);
  $("evidence-line").hidden = !count;
  const name = (a) => (facts.named ? JSON.stringify(facts.labels[a]) : String(a));
  const dict = (values) => "{" + given().map((a) => `${name(a)}: ${values[a]}`).join(", ") + "}";
  const noisy = given().some((a) => state.errors[a] > 0);
  const axes = (mixture.d > 1 ? [state.x, state.y] : [state.x]).map(position).join(", ");
  const sliced = count ? `.condition(${dict(state.values)}${noisy ? `, error=${dict(state.errors)}` : ""})` : "";
  $("python").textContent = `mixture${sliced}.marginal([${axes}])`;
}

/* Labels in Python; without labels, indices after the given coordinates are gone. */
function position(a) {
  return facts.named ? JSON.stringify(facts.labels[a]) : String(a - given().filter((b) => b < a).length);
}

/* Light and dark */

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  colours = table(name);
  const style = getComputedStyle(document.documentElement);
  tones = Object.fromEntries(NAMES.map((tone) => [tone, style.getPropertyValue(`--${tone}`).trim()]));
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  change();
  drawHistory();
}

/* A component's number, as `xdeconv info` and `members` have it, and which of its Gaussians where it is several. */
function nameOf(j) {
  return facts.scales > 1 ? `${Math.floor(j / facts.scales)}${String.fromCharCode(97 + (j % facts.scales))}` : String(j);
}

function about() {
  const shape = facts.structure === "full" ? "" : `, covariances ${facts.structure}`;
  const beside = facts.background ? `, and a background with ${brief(100 * facts.background.weight)} % of all rows` : "";
  const k = mixture.k / facts.scales;
  const what = `${k} ${facts.scales > 1 ? "component" : "Gaussian"}${k > 1 ? "s" : ""}`;
  const more = facts.beside.length ? `; with ${facts.beside.join("; with ")}` : "";
  const drawn = facts.scales > 1 ? `. Each component is ${facts.scales} Gaussians here, from a to ${nameOf(facts.scales - 1).slice(-1)}` : "";
  return `${what} in ${mixture.d} dimension${mixture.d > 1 ? "s" : ""}${shape}${beside}${more}${drawn}`;
}

function showBackground() {
  $("background").hidden = !facts.background;
  if (!facts.background) return;
  const where = facts.background.low ? `uniform ${mixture.d > 1 ? "in the dashed box" : "between the dashed lines"}` : "not drawn";
  $("background").textContent = `Background: ${brief(100 * facts.background.weight)} % of all rows, ${where}. Densities, weights and means here are of the components alone.`;
}

function start() {
  everywhere = new Slice(mixture, [], []).at([]);
  state.values = facts.labels.map((_, a) => {
    const { mean, sd } = everywhere.moments(a);
    return Number(measured(mean, sd / 10)[0].replace("−", "-"));
  });
  buildAxes();
  buildCoordinates();
  buildComponents();
  buildCursor();
  $("about").textContent = about();
  showBackground();
  $("meta").append(Object.keys(facts.meta).length ? told(facts.meta) : "The model says nothing of its origin.");
  $("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
  const wish = matchMedia("(prefers-color-scheme: dark)");
  wish.addEventListener("change", () => setTheme(wish.matches ? "dark" : "light"));
  setTheme(wish.matches ? "dark" : "light");
  new ResizeObserver(() => { change(); drawHistory(); }).observe(document.body);
}
