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
  for (const part of document.querySelectorAll(".of-two")) part.hidden = mixture.d < 2;
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
  $("whole").addEventListener("change", (e) => { state.whole = e.target.checked; change(); });
}

/* A value on an axis, to a thousandth of what is in view. */
const onAxis = (v, [low, high]) => measured(v, (high - low) / 100)[0];

/* The point under the pointer, or moved by the arrow keys */

function buildCursor() {
  const canvas = $("density");
  const set = (x, y) => {
    const inside = x >= view.x[0] && x <= view.x[1] && y >= view.y[0] && y <= view.y[1];
    state.cursor = inside && mixture.d > 1 ? [x, y] : null;
    $("cursor").textContent = "";
    if (state.cursor) {
      const { density, likeliest } = here.density(state.x, state.y, x, y);
      $("cursor").textContent = `${facts.labels[state.x]} = ${onAxis(x, view.x)}, ${facts.labels[state.y]} = ${onAxis(y, view.y)}: density ${brief(density)}, most likely component ${nameOf(likeliest)}`;
      $("cursor").title = `density ${shown(density)}`;
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
