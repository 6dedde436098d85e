// Fills report.html from the JSON in #data. Text goes in as text nodes only, so that no prompt can inject markup.
#include "report/page.hpp"

namespace tulle::page {

const std::string_view kScript = R"js("use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const report = data.report;
const dense = report.dense;
const $ = id => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") node.className = value;
    else if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}

function svg(parent, tag, attributes, text) {
  const node = document.createElementNS($("steps").namespaceURI, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function seconds(s) {
  if (s >= 100) return s.toFixed(0) + " s";
  if (s >= 1) return s.toFixed(s >= 10 ? 1 : 2) + " s";
  return s >= 1e-3 ? (s * 1e3).toFixed(s >= 0.1 ? 0 : 1) + " ms" : (s * 1e6).toFixed(0) + " \u00b5s";
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < 4) { n /= 1024; ++unit; }
  return (unit === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + units[unit];
}

const times = x => x === null ? "\u2013" : x.toFixed(2) + "\u00d7";
const percent = x => (100 * x).toFixed(1) + " %";

const split = text => text.split(" ");  // "1.5 s" -> value, unit

function tile(value, unit, name, note, lead) {
  const number = el("div", {class: "value"}, value);
  if (unit) number.append(el("small", {}, unit));
  return el("div", {class: lead ? "tile lead" : "tile"}, el("div", {class: "name"}, name), number,
            note ? el("div", {class: "note"}, note) : null);
}

function header() {
  $("prompt").textContent = report.prompt || "(no prompt)";
  const ranks = report.ranks === 1 ? "1 rank" : report.ranks + " ranks";
  $("where").textContent = [report.model, report.policy, report.grid.join(" \u00d7 ") + " tokens",
    report.steps + " steps", ranks].join(" \u00b7 ");
  document.title = "Tulle \u00b7 " + report.policy + " \u00b7 " + (report.prompt || report.model);
}

function tiles() {
  const list = [];
  if (dense) {
    list.push(tile(report.speedup.dit.toFixed(2), "\u00d7", "DiT speed-up",
                   "ceiling by Amdahl " + times(report.amdahl_ceiling), true));
    list.push(tile(report.speedup.attention.toFixed(2), "\u00d7", "Attention", "selection included"));
    list.push(tile(report.speedup.total.toFixed(2), "\u00d7", "End to end",
                   seconds(report.time.total_s) + " against " + seconds(dense.time.total_s)));
  } else {
    list.push(tile(...split(seconds(report.time.dit_s)), "DiT time", null, true));
    list.push(tile(...split(seconds(report.time.total_s)), "Total time"));
  }
  list.push(tile((100 * report.density.overall).toFixed(1), "%", "Density", "kept token pairs"));
  if (report.quality) {
    const psnr = report.quality.psnr;
    list.push(tile(psnr === null ? "equal" : psnr.toFixed(1), psnr === null ? "" : "dB", "PSNR to dense",
                   report.quality.ssim === null ? "" : "SSIM " + report.quality.ssim.toFixed(4)));
  }
  if (report.ranks > 1) {
    list.push(tile(...split(bytes(report.bytes.sent)), "Between ranks",
                   dense ? "dense: " + bytes(report.bytes.dense_sent) : null));
    list.push(tile(report.balance.time.toFixed(2), "\u00d7", "Imbalance", "slowest rank over mean"));
  }
  list.push(tile(...split(bytes(report.memory.peak)), "Peak memory",
                 report.memory.predicted ? "predicted: " + bytes(report.memory.predicted) : null));
  $("tiles").append(...list);
}

function screen(source, name, remark) {
  const video = el("video", {playsinline: "", preload: "auto"});
  video.muted = true;
  video.loop = true;
  video.onerror = () => console.error("the clip " + name + " cannot be played");
  video.src = source;
  // The time of the picture that is on the screen; null where the browser does not tell.
  video.shown = null;
  if (video.requestVideoFrameCallback) {
    const note = (_, frame) => { video.shown = frame.mediaTime; video.requestVideoFrameCallback(note); };
    video.requestVideoFrameCallback(note);
  }
  $("screens").append(el("figure", {}, video,
                         el("figcaption", {}, el("span", {}, name), el("span", {}, remark))));
  return video;
}

// |a - b|, eight times amplified by adding the picture to itself three times.
function difference(a, b) {
  const canvas = el("canvas", {class: "wide"});
  $("screens").append(el("figure", {}, canvas,
                         el("figcaption", {}, el("span", {}, "Difference"), el("span", {}, "8 times amplified"))));
  const pen = canvas.getContext("2d");
  return () => {
    if (!a.videoWidth || !b.videoWidth || a.shown !== b.shown) return;
    if (canvas.width !== a.videoWidth) { canvas.width = a.videoWidth; canvas.height = a.videoHeight; }
    pen.globalCompositeOperation = "copy";
    pen.drawImage(a, 0, 0);
    pen.globalCompositeOperation = "difference";
    pen.drawImage(b, 0, 0);
    pen.globalCompositeOperation = "lighter";
    for (let i = 0; i < 3; ++i) pen.drawImage(canvas, 0, 0);
  };
}

function clips() {
  $("clips").hidden = !data.video && !data.dense_video && !data.frames;
  if (data.frames) $("sheet").src = data.frames; else $("sheet").hidden = true;
  const videos = [];
  if (data.video) videos.push(screen(data.video, report.policy, "DiT " + seconds(report.time.dit_s)));
  if (data.dense_video) {
    videos.push(screen(data.dense_video, "dense", dense ? "DiT " + seconds(dense.time.dit_s) : ""));
  }
  if (!videos.length) { document.querySelector(".player").hidden = true; return; }
  const draw = videos.length === 2 ? difference(videos[0], videos[1]) : () => {};
  const lead = videos[0];
  let playing = true, dragging = false;
  const set = on => {
    playing = on;
    $("play").textContent = on ? "Pause" : "Play";
    for (const v of videos) on ? v.play().catch(() => {}) : v.pause();
  };
  $("play").onclick = () => set(!playing);
  $("seek").oninput = () => {
    dragging = true;
    set(false);
    for (const v of videos) v.currentTime = (lead.duration || 0) * $("seek").value / 1000;
    dragging = false;
  };
  const tick = () => {
    if (lead.duration && !dragging) $("seek").value = Math.round(1000 * lead.currentTime / lead.duration);
    for (const v of videos.slice(1)) {
      if (playing && !lead.seeking && !v.seeking && Math.abs(v.currentTime - lead.currentTime) > 0.06) {
        v.currentTime = lead.currentTime;
      }
    }
    draw();
    requestAnimationFrame(tick);
  };
  set(!matchMedia("(prefers-reduced-motion: reduce)").matches);
  tick();
}

const phases = [["Attention", "attention"], ["Selection", "select"], ["Communication", "communication"],
                ["Rest of the DiT", "other"], ["Outside the DiT", "rest"]];
const colour = name => "background:var(--" + name + ")";

function parts(t) {
  const inner = t.attention_s + t.select_s + t.communication_s;
  return [t.attention_s, t.select_s, t.communication_s, Math.max(t.dit_s - inner, 0),
          Math.max(t.total_s - Math.max(t.dit_s, inner), 0)];
}

function legend(target, entries) {
  for (const [name, key] of entries) $(target).append(el("span", {}, el("i", {style: colour(key)}), name));
}

function bars() {
  const rows = [[report.policy, report.time]];
  if (dense) rows.push(["dense", dense.time]);
  const most = Math.max(...rows.map(([, t]) => parts(t).reduce((a, b) => a + b, 0)), 1e-12);
  const used = phases.map(() => 0);
  for (const [name, time] of rows) {
    const stack = el("div", {class: "stack"});
    parts(time).forEach((value, i) => {
      used[i] += value;
      if (value > 0) {
        stack.append(el("i", {style: colour(phases[i][1]) + ";width:" + (100 * value / most) + "%",
                              title: phases[i][0] + ": " + seconds(value)}));
      }
    });
    $("bars").append(el("div", {class: "bar"}, el("span", {}, name), stack, el("span", {}, seconds(time.total_s))));
  }
  legend("bar-legend", phases.filter((_, i) => used[i] > 0));
  const share = t => t.dit_s > 0 ? t.attention_s / t.dit_s : 0;
  $("time-hint").textContent = dense
    ? "Attention is " + percent(share(dense.time)) + " of the dense DiT time; at density " +
      report.density.overall.toFixed(3) + " the DiT can run at most " + times(report.amdahl_ceiling) + " as fast."
    : "Attention is " + percent(share(report.time)) + " of the DiT time. There was no dense run to compare with.";
}

const shade = v => "color-mix(in oklab, var(--high) " + (100 * Math.min(Math.max(v, 0), 1)).toFixed(1) +
                   "%, var(--low))";

function heat() {
  const rows = report.density.by_head;
  $("heat-section").hidden = !rows.length;
  $("ramp").style.background = "linear-gradient(in oklab to right, var(--low), var(--high))";
  if (!rows.length) return;
  const heads = Math.max(...rows.map(r => r.length));
  const box = $("heat");
  if (heads > 16) {
    box.classList.add("many");
    box.closest(".pair").classList.add("wide");
  }
  box.style.gridTemplateColumns = "max-content repeat(" + (heads + 1) + ", minmax(0, 1fr))";
  box.append(el("span", {}, ""));
  for (let h = 0; h < heads; ++h) box.append(el("span", {class: "head"}, heads <= 16 ? String(h) : ""));
  box.append(el("span", {class: "head"}, "mean"));
  const cell = (v, kind, title) => el("span", {
    class: "cell " + kind, title, style: "background:" + shade(v) + ";color:" + (v > 0.5 ? "var(--card)" : "var(--ink)")
  }, heads <= 12 ? v.toFixed(2) : "");
  rows.forEach((row, layer) => {
    box.append(el("span", {}, "layer " + layer));
    row.forEach((v, h) => box.append(cell(v, "", "layer " + layer + ", head " + h + ": " + v.toFixed(4))));
    for (let h = row.length; h < heads; ++h) box.append(el("span"));
    const mean = report.density.by_layer[layer] ?? row.reduce((a, b) => a + b, 0) / Math.max(row.length, 1);
    box.append(cell(mean, "mean", "layer " + layer + ": " + mean.toFixed(4)));
  });
}

function steps() {
  const values = report.density.by_step;
  $("step-section").hidden = !values.length;
  const left = 34, right = 512, top = 12, bottom = 268;
  const x = i => values.length === 1 ? (left + right) / 2 : left + (right - left) * i / (values.length - 1);
  const y = v => bottom - (bottom - top) * v;
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    svg($("steps"), "line", {x1: left, x2: right, y1: y(v), y2: y(v), class: "grid"});
    svg($("steps"), "text", {x: left - 8, y: y(v) + 4, "text-anchor": "end"}, String(v));
  }
  const stride = Math.max(1, Math.ceil(values.length / 10));
  values.forEach((_, i) => {
    if (i % stride === 0) svg($("steps"), "text", {x: x(i), y: bottom + 20, "text-anchor": "middle"}, String(i));
  });
  const line = values.map((v, i) => x(i).toFixed(1) + "," + y(v).toFixed(1)).join(" ");
  if (values.length > 1) {
    svg($("steps"), "polygon", {points: left + "," + bottom + " " + line + " " + right + "," + bottom, class: "area"});
    svg($("steps"), "polyline", {points: line, class: "curve"});
  }
  values.forEach((v, i) => {
    const dot = svg($("steps"), "circle", {cx: x(i), cy: y(v), r: values.length > 40 ? 2 : 3.5, class: "dot"});
    svg(dot, "title", {}, "step " + i + ": " + v.toFixed(4));
  });
}

const bytes_of = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const plane = data.blocks;  // which blocks the pictures are of, and where they stand in the video; null if unknown
for (const mask of data.masks) {
  mask.bits = bytes_of(mask.bits);
  if (mask.ranks) mask.ranks = bytes_of(mask.ranks);
}

// A colour of the style sheet, "#rrggbb", as three numbers.
function tone(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  return [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
}

const kept_at = (mask, q, k) => {
  const i = q * mask.columns + k;
  return (mask.bits[i >> 3] & (128 >> (i & 7))) !== 0;
};

// The rank of video blocks q, k; the smallest of its cell where the picture is folded.
const rank_at = (mask, q, k) => mask.ranks[Math.floor(q / mask.fold) * Math.ceil(plane.k / mask.fold) +
                                           Math.floor(k / mask.fold)];

// From the smallest rank to the largest by the root: most of what is kept has a small one.
function rank_tone(rank, low, high) {
  const t = Math.sqrt((rank - 1) / 254);
  return high.map((h, i) => h + t * (low[i] - h));
}

// Paints a canvas of rows x columns cells; colour(row, column) is three numbers.
function paint(canvas, rows, columns, colour) {
  canvas.width = columns;
  canvas.height = rows;
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows);
  for (let row = 0, at = 0; row < rows; ++row) {
    for (let column = 0; column < columns; ++column) {
      for (const part of colour(row, column)) image.data[at++] = part;
      image.data[at++] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
}

function paint_mask(canvas, mask) {
  const low = tone("low"), high = tone("high");
  paint(canvas, mask.rows, mask.columns, (q, k) => kept_at(mask, q, k) ? high : low);
}

function paint_ranks(canvas, mask) {
  const low = tone("low"), high = tone("high"), columns = Math.ceil(plane.k / mask.fold);
  paint(canvas, Math.ceil(plane.q / mask.fold), columns, (q, k) => rank_tone(mask.ranks[q * columns + k], low, high));
}

function kept(mask) {
  let count = 0;
  for (const byte of mask.bits) for (let b = byte; b; b &= b - 1) ++count;
  return count / (mask.rows * mask.columns);
}

// One head: its mask, and beside it its ranks. Clicking a row chooses it for the view.
function head_figure(mask, number, drawn) {
  const name = "layer " + mask.layer + ", head " + mask.head, both = el("div", {class: "both"});
  const add = (what, rows, first, painter) => {  // `first`: rows of text before those of the video
    const canvas = el("canvas", {role: "img", "aria-label": what + " of " + name});
    canvas.onclick = event => choose(number, Math.floor(event.offsetY / canvas.clientHeight * rows) - first);
    both.append(canvas);
    drawn.push(() => painter(canvas, mask));
  };
  add("mask", mask.rows, plane ? plane.q_first : 0, paint_mask);
  if (mask.ranks) add("rank map", plane.q, 0, paint_ranks);
  return el("figure", {}, both, el("figcaption", {}, el("span", {}, "L" + mask.layer + " H" + mask.head),
                                   el("span", {}, percent(kept(mask)))));
}

const redrawn = [];  // what is painted anew when the colours change

function masks() {
  $("mask-section").hidden = !data.masks.length;
  const ranked = data.masks.some(mask => mask.ranks);
  $("masks").classList.toggle("pairs", ranked);
  $("rank-hint").hidden = $("rank-scale").hidden = !ranked;
  const stops = Array.from({length: 9}, (_, i) => "color-mix(in srgb, var(--low) " + (100 * Math.sqrt(i / 8)).toFixed(0) +
                                                  "%, var(--high))");
  $("rank-ramp").style.background = "linear-gradient(to right, " + stops.join(", ") + ")";
  $("left-out").hidden = !data.masks_left_out;
  $("left-out").textContent = " " + data.masks_left_out + " of " + (data.masks_left_out + data.masks.length) +
                              " heads are left out to keep this page small.";
  data.masks.forEach((mask, number) => $("masks").append(head_figure(mask, number, redrawn)));
  $("more").hidden = data.masks.length <= 24;
  $("more").textContent = "Show all " + data.masks.length;
  $("more").onclick = () => { $("masks").classList.remove("short"); $("more").hidden = true; };
}

// --- one query block in the video ---

const chosen = {head: 0, query: 0};

// Block numbers of all tokens, raster order, from two bytes each.
function block_numbers(text) {
  const bytes = bytes_of(text);
  return Array.from({length: bytes.length / 2}, (_, i) => bytes[2 * i] + 256 * bytes[2 * i + 1]);
}

// Frames side by side, as many a row as gives the largest tokens on `wide` pixels in a picture no taller than wide.
function frame_sheet(wide) {
  const [frames, height, width] = report.grid, gap = 6;
  let best = null;
  for (let across = 1; across <= frames; ++across) {
    const down = Math.ceil(frames / across);
    const side = Math.min((wide - gap * (across - 1)) / (across * width), (wide / 2 - gap * (down - 1)) / (down * height));
    if (!best || side > best.side) best = {across, down, side};
  }
  best.side = Math.max(2, Math.min(18, Math.floor(best.side)));
  const step = {x: width * best.side + gap, y: height * best.side + gap};
  return {...best, width: best.across * step.x - gap, height: best.down * step.y - gap,
          x: f => f % best.across * step.x, y: f => Math.floor(f / best.across) * step.y};
}

// Every token in the colour of its key block, the tokens of the query block outlined.
function paint_video(canvas, colour) {
  const sheet = frame_sheet(1120), [frames, height, width] = report.grid, s = sheet.side, pen = canvas.getContext("2d");
  canvas.width = sheet.width;
  canvas.height = sheet.height;
  const line = Math.max(1, Math.floor(s / 4));
  const inside = (f, y, x) => y >= 0 && y < height && x >= 0 && x < width &&
                              plane.q_of[(f * height + y) * width + x] === chosen.query;
  const outline = "rgb(" + tone("select").join() + ")";
  for (let f = 0, at = 0; f < frames; ++f) for (let y = 0; y < height; ++y) for (let x = 0; x < width; ++x, ++at) {
    const left = sheet.x(f) + x * s, top = sheet.y(f) + y * s;
    pen.fillStyle = "rgb(" + colour(plane.k_of[at]).map(Math.round).join() + ")";
    pen.fillRect(left, top, s, s);
    if (!inside(f, y, x)) continue;
    pen.fillStyle = outline;
    if (!inside(f, y - 1, x)) pen.fillRect(left, top, s, line);
    if (!inside(f, y + 1, x)) pen.fillRect(left, top + s - line, s, line);
    if (!inside(f, y, x - 1)) pen.fillRect(left, top, line, s);
    if (!inside(f, y, x + 1)) pen.fillRect(left + s - line, top, line, s);
  }
}

function draw_view() {
  const mask = data.masks[chosen.head], low = tone("low"), high = tone("high"), q = chosen.query;
  const views = [["Kept by the mask", k => kept_at(mask, plane.q_first + q, plane.k_first + k) ? high : low]];
  if (mask.ranks) views.push(["Ranks of the profile", k => rank_tone(rank_at(mask, q, k), low, high)]);
  $("view").replaceChildren(...views.map(([name, colour]) => {
    const canvas = el("canvas", {role: "img", "aria-label": name});
    paint_video(canvas, colour);
    return el("figure", {}, canvas, el("figcaption", {}, el("span", {}, name)));
  }));
  $("view-name").textContent = "query block " + q + " of " + plane.q;
  $("view-head").value = String(chosen.head);
  $("view-query").value = String(q);
  Array.from($("masks").children).forEach((figure, i) => figure.classList.toggle("chosen", i === chosen.head));
}

function choose(head, query) {
  if (!plane || !plane.q_of) return;
  chosen.head = head;
  chosen.query = Math.min(Math.max(query, 0), plane.q - 1);
  draw_view();
}

function view() {
  const here = data.masks.length > 0 && plane !== null && plane.q_of !== "";
  $("view-section").hidden = !here;
  if (here) {
    plane.q_of = block_numbers(plane.q_of);
    plane.k_of = block_numbers(plane.k_of);
    data.masks.forEach((mask, i) => $("view-head").append(
      el("option", {value: i}, "layer " + mask.layer + ", head " + mask.head)));
    $("view-query").max = String(plane.q - 1);
    $("view-head").onchange = () => choose(Number($("view-head").value), chosen.query);
    $("view-query").oninput = () => choose(chosen.head, Number($("view-query").value));
    chosen.query = plane.centre;
    redrawn.push(draw_view);
  }
  const all = () => redrawn.forEach(draw => draw());
  all();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
}

// A round step that divides `span` into about `count` parts.
function nice(span, count) {
  const raw = span / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  return [1, 2, 5, 10].map(f => f * power).find(s => s >= raw);
}

function timeline() {
  const spans = data.timeline;
  $("time-section").hidden = !spans.length;
  if (!spans.length) return;
  const ranks = Math.max(...spans.map(s => s[1])) + 1, last = Math.max(...spans.map(s => s[3]), 1e-9);
  const picture = $("timeline"), left = 52, right = 1100, row = ranks > 8 ? 20 : 30, bottom = ranks * row + 6;
  picture.setAttribute("viewBox", "0 0 1110 " + (bottom + 24));
  const x = t => left + (right - left) * t / last;
  const step = nice(last, 8);
  for (let i = 0; i * step <= last * 1.0001; ++i) {
    svg(picture, "line", {x1: x(i * step), x2: x(i * step), y1: 0, y2: bottom, class: "grid"});
    svg(picture, "text", {x: x(i * step), y: bottom + 16, "text-anchor": "middle"}, +(i * step).toPrecision(6) + " s");
  }
  for (let r = 0; r < ranks; ++r) {
    svg(picture, "text", {x: 0, y: r * row + row / 2 + 4}, "rank " + r);
    svg(picture, "rect", {x: left, y: r * row + 4, width: right - left, height: row - 8, fill: "var(--low)", rx: 3});
  }
  const known = ["attention", "select", "communication", "other"];
  for (const [name, rank, begin, end] of spans) {
    const rect = svg(picture, "rect", {x: x(begin), y: rank * row + 4, width: Math.max(x(end) - x(begin), 0.4),
                                       height: row - 8, fill: "var(--" + (known.includes(name) ? name : "other") + ")"});
    svg(rect, "title", {}, name + ", rank " + rank + ": " + seconds(end - begin) + " from " + seconds(begin));
  }
  const seen = new Set(spans.map(s => s[0]));
  legend("time-legend", [["Attention", "attention"], ["Selection", "select"], ["Communication", "communication"],
                         ["Other", "other"]].filter(([, key]) => seen.has(key)));
}

function edges() {
  const rows = report.bytes.per_edge;
  $("edge-section").hidden = rows.length < 2;
  if (rows.length < 2) return;
  const most = Math.max(...rows.flat(), 1);
  const table = $("edges");
  table.append(el("tr", {}, el("th", {}, ""), ...rows.map((_, i) => el("th", {}, "to " + i))));
  rows.forEach((row, from) => table.append(el("tr", {}, el("th", {}, "from " + from), ...row.map(n => {
    const strong = n / most > 0.5;
    return el("td", {style: n ? "padding-left:8px;background:" + shade(n / most) +
                                (strong ? ";color:var(--card)" : "") : "padding-left:8px"}, n ? bytes(n) : "\u2013");
  }))));
}

function routes() {
  $("route-section").hidden = !report.routes.length;
  $("routes").append(el("tr", {}, ...["What", "Route", "Why"].map(t => el("th", {}, t))));
  for (const r of report.routes) {
    $("routes").append(el("tr", {}, el("td", {}, r.what), el("td", {}, el("code", {}, r.route)), el("td", {}, r.why)));
  }
}

function facts() {
  const m = report.machine;
  const list = [["Model", report.model], ["Policy", report.policy],
    ["Grid", report.grid.join(" \u00d7 ") + " = " + report.grid.reduce((a, b) => a * b, 1).toLocaleString("en") +
             " tokens (frames \u00d7 height \u00d7 width)"],
    ["Sampler", report.steps + " steps, shift " + report.shift + ", guidance " + report.guidance],
    ["Seed", String(report.seed)], ["Parallel", report.parallel + ", ranks: " + report.ranks],
    ["Device", report.device + ", " + report.precision],
    ["Processor", m.processor + ", " + m.cores + " cores, " + m.threads + " threads used"]];
  if (m.gpu) list.push(["GPU", m.gpu]);
  if (report.ranks > 1) {
    list.push(["Balance", "blocks " + report.balance.blocks.toFixed(3) + ", time " + report.balance.time.toFixed(3) +
                          " (largest over mean)"]);
  }
  if (report.quality) list.push(["Relative L2 to dense", report.quality.relative_l2.toPrecision(3)]);
  for (const [name, value] of list) $("facts").append(el("dt", {}, name), el("dd", {}, value));
  $("raw").textContent = JSON.stringify(report, null, 2);
  $("foot").textContent = "Written by Tulle " + report.tulle.version + ", commit " + report.tulle.commit + ".";
}

for (const part of [header, tiles, clips, bars, heat, steps, masks, view, timeline, edges, routes, facts]) part();
)js";

}  // namespace tulle::page
