/* The list of components */

function listComponents() {
  const order = [...here.weights.keys()].sort((a, b) => here.weights[b] - here.weights[a]);
  const list = $("components");
  const heaviest = here.weights[order[0]] || 1;
  order.forEach((j, i) => {
    const item = list.children[i];
    const share = here.weights[j];
    item.dataset.component = j;
    item.children[0].textContent = nameOf(j);
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

function showDetail() {
  if (state.highlight < 0) {
    $("detail").hidden = true;
    return;
  }
  const [j, f] = [state.highlight, here.f];
  $("detail").hidden = false;
  $("detail-name").textContent = `Component ${nameOf(j)}`;
  exact($("detail-weight"), brief(here.weights[j]), here.weights[j]);
  exact($("detail-whole"), brief(mixture.weights[j]), mixture.weights[j]);
  $("detail-rows").replaceChildren(...here.free.map((a, e) => {
    const pair = [here.means[j * f + e], Math.sqrt(here.covariances[j * f * f + e * f + e])];
    const [mean, sd] = measured(...pair);
    return element("tr", {}, element("th", { scope: "row", textContent: facts.labels[a] }),
      exact(element("td"), mean, pair[0]), exact(element("td"), `± ${sd}`, pair[1]),
      element("td", { className: "unit", textContent: facts.units[a] }));
  }));
}
