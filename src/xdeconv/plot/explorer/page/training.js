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
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.w, box.h);
  context.clip();
  lines.forEach((line) => stroke(context, css(`series-${(line.restart % 4) + 1}`), 1.8, line.dash, () =>
    line.points.forEach((p, i) => (i ? context.lineTo(...at(p)) : context.moveTo(...at(p))))));
  context.restore();
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
