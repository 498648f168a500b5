/* The page: its controls, what they change, and drawing when something did. */

const facts = JSON.parse(document.getElementById("facts").textContent);
const mixture = new Mixture(facts);
const $ = (id) => document.getElementById(id);
const GRIDS = [96, 128, 176, 240, 320]; // cells along each side, from coarse to fine
const PAUSE = 60; // milliseconds between changes of the numbers while something moves: laying out text is slow
const BUDGET = 16; // milliseconds of computing that a frame may take while something moves

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
};
let [slice, sliceKey, here, everywhere, idle, waiting, toldAt] = [null, "", null, null, 0, false, 0];

const shown = (v) => (Number.isFinite(v) ? String(Number(v.toPrecision(8))).replace("-", "−") : "not defined");
const brief = (v) => String(Number(v.toPrecision(4))).replace("-", "−");
const title = (a) => facts.labels[a] + (facts.units[a] ? ` [${facts.units[a]}]` : "");
const theme = () => document.documentElement.dataset.theme;
const NAMES = ["paper", "ink", "ink-soft", "line", "grid", "blue", "fill", "accent", "contour", "series-1", "series-2",
               "series-3", "series-4"];
let [colours, tones] = [table("light"), {}]; // of densities; of the style sheet
const css = (name) => tones[name];

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
    $("problem").textContent = `Component ${slice.singular + 1} has no width in the given coordinates: give an error (±).`;
  } else {
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

const view = { box: null, x: [0, 1], y: [0, 1] };
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
  [view.x, view.y] = [facts.ranges[state.x], facts.ranges[state.y]];
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
  if (state.every) drawEvery(context);
  if (state.highlight >= 0) drawHighlight(context, state.highlight);
  if (state.cursor) drawCursor(context);
  context.restore();
}

function drawEvery(context) {
  const heaviest = Math.max(...here.weights);
  for (let j = 0; j < here.k; j++) {
    const share = here.weights[j] / heaviest;
    if (share < 0.01) continue;
    context.globalAlpha = 0.15 + 0.75 * Math.sqrt(share);
    stroke(context, css("accent"), 0.9, [], () => ellipse(context, here.pair(j, state.x, state.y), 1, place));
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
  };
  if (mixture.d > 1) {
    along(state.y, view.y, (t, v) => [box.x + box.w + 5 + v * strip, box.y + (1 - t) * box.h]);
    along(state.x, view.x, (t, v) => [box.x + t * box.w, box.y - 5 - v * strip]);
  } else {
    along(state.x, view.x, (t, v) => [box.x + t * box.w, box.y + box.h - v * box.h]);
  }
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
    row.mean.textContent = moments ? shown(moments.mean) : "";
    row.sd.textContent = moments ? shown(moments.sd) : "";
    row.free.hidden = fixed;
    const typed = String(Number(state.values[a].toPrecision(6)));
    if (document.activeElement !== row.number && row.number.value !== typed) row.number.value = typed;
    if (row.slider.valueAsNumber !== state.values[a]) row.slider.value = state.values[a];
  }
  const count = given().length;
  $("evidence").textContent = count ? shown(here.logDensity) : "";
  $("evidence-line").hidden = !count;
  const name = (a) => (facts.named ? JSON.stringify(facts.labels[a]) : String(a));
  const dict = (values) => "{" + given().map((a) => `${name(a)}: ${values[a]}`).join(", ") + "}";
  const noisy = given().some((a) => state.errors[a] > 0);
  const axes = (mixture.d > 1 ? [state.x, state.y] : [state.x]).map(position(count)).join(", ");
  const sliced = count ? `.condition(${dict(state.values)}${noisy ? `, error=${dict(state.errors)}` : ""})` : "";
  $("python").textContent = `mixture${sliced}.marginal([${axes}])`;
}

/* Labels in Python; without labels, indices after the given coordinates are gone. */
function position(count) {
  return (a) => (facts.named ? JSON.stringify(facts.labels[a]) : String(a - given().filter((b) => b < a).length));
}

function showDetail() {
  if (state.highlight < 0) {
    $("detail").hidden = true;
    return;
  }
  const [j, f] = [state.highlight, here.f];
  $("detail").hidden = false;
  $("detail-name").textContent = `Component ${j + 1}`;
  $("detail-weight").textContent = shown(here.weights[j]);
  $("detail-whole").textContent = shown(mixture.weights[j]);
  $("detail-rows").replaceChildren(...here.free.map((a, e) =>
    element("tr", {}, element("th", { scope: "row", textContent: facts.labels[a] }),
      element("td", { textContent: brief(here.means[j * f + e]) }),
      element("td", { textContent: `± ${brief(Math.sqrt(here.covariances[j * f * f + e * f + e]))}` }),
      element("td", { className: "unit", textContent: facts.units[a] }))));
}

/* The list of components */

function listComponents() {
  const order = [...here.weights.keys()].sort((a, b) => here.weights[b] - here.weights[a]);
  const list = $("components");
  const heaviest = here.weights[order[0]] || 1;
  order.forEach((j, i) => {
    const item = list.children[i];
    const share = here.weights[j];
    item.dataset.component = j;
    item.children[0].textContent = j + 1;
    item.children[1].firstChild.style.transform = `scaleX(${share / heaviest})`;
    item.children[2].textContent = share >= 1e-6 ? `${(100 * share).toPrecision(4)} %` : "0 %";
    item.setAttribute("aria-selected", j === state.highlight);
    item.tabIndex = -1;
  });
  const under = list.querySelector("li:focus, li:hover"); // what is pointed at stays in place: another may be there now
  if (under) highlight(Number(under.dataset.component));
  (under || list.querySelector("[aria-selected=true]") || list.firstChild).tabIndex = 0;
}

function highlight(j) {
  if (j === state.highlight) return;
  state.highlight = j;
  for (const item of $("components").children) item.setAttribute("aria-selected", Number(item.dataset.component) === j);
  change();
}

function buildComponents() {
  const list = $("components");
  for (let j = 0; j < mixture.k; j++) {
    const bar = element("span", { className: "bar" }, element("span"));
    list.append(element("li", { role: "option", tabIndex: -1 }, element("span", { className: "number" }), bar,
      element("span", { className: "share" })));
  }
  const of = (event) => event.target.closest("li");
  list.addEventListener("pointerover", (event) => of(event) && highlight(Number(of(event).dataset.component)));
  list.addEventListener("pointerleave", () => list.contains(document.activeElement) || highlight(-1));
  list.addEventListener("focusin", (event) => of(event) && highlight(Number(of(event).dataset.component)));
  list.addEventListener("focusout", () => highlight(-1));
  list.addEventListener("keydown", (event) => {
    const items = [...list.children];
    const now = items.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -items.length, End: items.length }[event.key];
    if (event.key === "Escape") document.activeElement.blur();
    if (!step) return;
    event.preventDefault();
    items[Math.max(0, Math.min(items.length - 1, now + step))].focus();
  });
}

/* Controls of the coordinates */

const rows = [];

function buildCoordinates() {
  facts.labels.forEach((label, a) => {
    const [low, high] = facts.ranges[a];
    const touch = (value) => {
      if (!Number.isFinite(value)) return;
      state.values[a] = value;
      state.fixed[a] = true;
      change();
    };
    const name = { "aria-label": `value of ${label}` };
    const row = {
      fix: element("input", { type: "checkbox", "aria-label": `fix ${label}`,
                              onchange: (e) => { state.fixed[a] = e.target.checked; change(); } }),
      axis: element("span", { className: "axis" }),
      slider: element("input", { type: "range", min: low, max: high, step: "any", ...name,
                                 oninput: (e) => touch(e.target.valueAsNumber) }),
      number: element("input", { type: "number", step: "any", ...name, oninput: (e) => touch(e.target.valueAsNumber) }),
      error: element("input", { type: "number", step: "any", min: 0, value: 0, "aria-label": `error of ${label}`,
                                oninput: (e) => { state.errors[a] = Math.max(0, e.target.valueAsNumber || 0); change(); } }),
      mean: element("span", { className: "mean" }),
      sd: element("span", { className: "sd" }),
    };
    row.slider.value = state.values[a];
    row.slider.addEventListener("keydown", (event) => nudge(event, a, (high - low) / 100, touch));
    row.free = element("span", { className: "free" }, row.mean, " ± ", row.sd);
    row.root = element("div", { className: "coordinate" },
      element("label", { className: "name" }, row.fix, element("span", { textContent: label }),
        element("span", { className: "unit", textContent: facts.units[a] }), row.axis),
      row.free,
      element("div", { className: "set" }, row.slider, row.number, element("span", { className: "pm", textContent: "±" }), row.error));
    row.root.dataset.coordinate = label;
    rows.push(row);
    $("coordinates").append(row.root);
  });
}

/* Arrows move a slider by a hundredth of its range, with Shift by a tenth. */
function nudge(event, a, step, touch) {
  const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
  if (!way) return;
  event.preventDefault();
  touch(Math.min(facts.ranges[a][1], Math.max(facts.ranges[a][0], state.values[a] + way * step * (event.shiftKey ? 10 : 1))));
}

function buildAxes() {
  for (const axis of ["x", "y"]) {
    const select = $(`axis-${axis}`);
    facts.labels.forEach((label, a) => select.append(element("option", { value: a, textContent: title(a) })));
    select.value = state[axis];
    select.addEventListener("change", () => {
      const other = axis === "x" ? "y" : "x";
      const before = state[axis];
      state[axis] = Number(select.value);
      if (state[other] === state[axis]) [state[other], $(`axis-${other}`).value] = [before, before];
      state.fixed[state[axis]] = false;
      state.cursor = null;
      change();
    });
    select.disabled = mixture.d < 2;
  }
  $("swap").addEventListener("click", () => {
    [state.x, state.y] = [state.y, state.x];
    [$("axis-x").value, $("axis-y").value] = [state.x, state.y];
    state.cursor = null;
    change();
  });
  $("reset").addEventListener("click", () => {
    state.fixed.fill(false);
    state.errors.fill(0);
    rows.forEach((row) => (row.error.value = 0));
    change();
  });
  $("every").addEventListener("change", (e) => { state.every = e.target.checked; change(); });
}

/* The point under the pointer, or moved by the arrow keys */

function buildCursor() {
  const canvas = $("density");
  const set = (x, y) => {
    const inside = x >= view.x[0] && x <= view.x[1] && y >= view.y[0] && y <= view.y[1];
    state.cursor = inside && mixture.d > 1 ? [x, y] : null;
    $("cursor").textContent = "";
    if (state.cursor) {
      const { density, likeliest } = here.density(state.x, state.y, x, y);
      $("cursor").textContent = `${facts.labels[state.x]} = ${brief(x)}, ${facts.labels[state.y]} = ${brief(y)}: density ${shown(density)}, most likely component ${likeliest + 1}`;
      highlight(likeliest);
    } else highlight(-1);
    change();
  };
  canvas.addEventListener("pointermove", (event) => {
    const { box } = view;
    set(view.x[0] + ((event.offsetX - box.x) / box.w) * (view.x[1] - view.x[0]),
        view.y[1] - ((event.offsetY - box.y) / box.h) * (view.y[1] - view.y[0]));
  });
  canvas.addEventListener("pointerleave", () => set(NaN, NaN));
  canvas.addEventListener("blur", () => set(NaN, NaN));
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (event.key === "Escape") set(NaN, NaN);
    if (!way) return;
    event.preventDefault();
    const [dx, dy] = [(view.x[1] - view.x[0]) / (event.shiftKey ? 10 : 100), (view.y[1] - view.y[0]) / (event.shiftKey ? 10 : 100)];
    const [x, y] = state.cursor || [(view.x[0] + view.x[1]) / 2, (view.y[0] + view.y[1]) / 2];
    const clamp = (v, [low, high]) => Math.min(high, Math.max(low, v));
    set(clamp(x + way[0] * dx, view.x), clamp(y + way[1] * dy, view.y));
  });
}

/* Training history */

function drawHistory() {
  const found = facts.history;
  const lines = found ? historyLines(found) : [];
  $("history").hidden = $("legend").hidden = !lines.length;
  $("no-history").hidden = lines.length > 0;
  if (!lines.length) return;
  const { context, w, h } = sharpen($("history"));
  const box = { x: 70, y: 8, w: w - 82, h: h - 50 };
  const later = lines.flatMap((line) => line.points.slice(Math.floor(line.points.length / 10)).map((p) => p[1]));
  const all = lines.flatMap((line) => line.points.map((p) => p[1]));
  const [bottom, top] = [Math.min(...later), Math.max(...all)];
  const room = Math.max(top - bottom, 1e-9 * Math.max(1, Math.abs(top)));
  const low = Math.max(Math.min(...all), bottom - 0.5 * room) - 0.05 * room;
  const high = top + 0.05 * room;
  const last = Math.max(1, ...lines.flatMap((line) => line.points.map((p) => p[0])));
  const at = ([x, y]) => [box.x + (x / last) * box.w, box.y + ((high - y) / (high - low)) * box.h];
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = css("ink-soft");
  context.textAlign = "right";
  for (const tick of ticks(low, high, box.h / 40)) {
    const py = at([0, tick.value])[1];
    stroke(context, css("grid"), 1, [], () => { context.moveTo(box.x, py); context.lineTo(box.x + box.w, py); });
    context.fillText(tick.text, box.x - 8, py + 4);
  }
  context.textAlign = "center";
  for (const tick of ticks(0, last, box.w / 80).filter((t) => Number.isInteger(t.value))) context.fillText(String(tick.value), at([tick.value, 0])[0], box.y + box.h + 18);
  context.fillText("epoch", box.x + box.w / 2, h - 6);
  context.save();
  context.translate(12, box.y + box.h / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("log-likelihood per row", 0, 0, box.h);
  context.restore();
  context.beginPath();
  context.rect(box.x, box.y, box.w, box.h);
  context.clip();
  lines.forEach((line) => stroke(context, css(`series-${(line.restart % 4) + 1}`), 1.8, line.dash, () =>
    line.points.forEach((p, i) => (i ? context.lineTo(...at(p)) : context.moveTo(...at(p))))));
}

function historyLines(found) {
  const lines = [];
  for (const restart of [...new Set(found.restart)]) {
    for (const [name, dash] of [["loglik", []], ["validation", [5, 4]]]) {
      const points = found.epoch.map((e, i) => [e, found[name][i], found.restart[i]])
        .filter((p) => p[2] === restart && Number.isFinite(p[1]));
      if (points.length) lines.push({ points, dash, restart, name });
    }
  }
  const many = new Set(found.restart).size > 1;
  const words = { loglik: "training rows", validation: "held-out rows" };
  $("legend").replaceChildren(...lines.map((line) => {
    const key = element("span", { className: `key series-${(line.restart % 4) + 1}${line.dash.length ? " dashed" : ""}` });
    return element("span", {}, key, (many ? `start ${line.restart + 1}, ` : "") + words[line.name]);
  }));
  return lines;
}

/* What made the model: any JSON as nested lists, as text */

function told(value) {
  if (value === null || value === undefined) return element("span", { className: "none", textContent: "none" });
  if (Array.isArray(value) && value.every((part) => typeof part !== "object")) return element("span", { textContent: value.join(", ") });
  if (typeof value !== "object") return element("span", { textContent: typeof value === "number" ? shown(value) : String(value) });
  const list = element("dl");
  for (const [name, part] of Object.entries(value)) {
    if (part === null || (typeof part === "object" && !Object.keys(part).length)) continue;
    list.append(element("dt", { textContent: name }), element("dd", {}, told(part)));
  }
  return list;
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

function start() {
  everywhere = new Slice(mixture, [], []).at([]);
  state.values = facts.labels.map((_, a) => Number(everywhere.moments(a).mean.toPrecision(6)));
  buildAxes();
  buildCoordinates();
  buildComponents();
  buildCursor();
  $("about").textContent = `${mixture.k} Gaussian${mixture.k > 1 ? "s" : ""} in ${mixture.d} dimension${mixture.d > 1 ? "s" : ""}`;
  $("meta").append(Object.keys(facts.meta).length ? told(facts.meta) : "The model says nothing of its origin.");
  $("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
  const wish = matchMedia("(prefers-color-scheme: dark)");
  wish.addEventListener("change", () => setTheme(wish.matches ? "dark" : "light"));
  setTheme(wish.matches ? "dark" : "light");
  new ResizeObserver(() => { change(); drawHistory(); }).observe(document.body);
}

start();
