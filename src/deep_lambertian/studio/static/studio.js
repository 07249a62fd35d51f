// The studio's page. A job is known by its status, which comes as server-sent events: whatever it says is shown.
"use strict";
const $ = (id) => document.getElementById(id);
const API = "/api/v1";
const ENDED = ["done", "failed", "cancelled"];
let limits = { photos: 12, photo_pixels: 25e6, upload_bytes: 60e6 };
let current = null, source = null, shown = {}, space, more = null;

// ---- Talking to the server

async function api(path, options = {}) {
  let answer;
  try {
    answer = await fetch(API + path, options);
  } catch {
    gone(true);
    throw new Error("The studio does not answer.");
  }
  gone(false);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `The studio answered ${answer.status}.`);
  return answer;
}

const json = async (path, options) => (await api(path, options)).json();
const view = (name) => `${API}/results/${current}/view/${name}`;
const post = (path, form) => json(path, { method: "POST", body: form });

function gone(is) {
  $("gone").hidden = !is;
  document.body.classList.toggle("stopped", is);
  $("gone").textContent = is ? "The studio has stopped. Start it again with dln studio, and open the address it prints." : "";
}

function complain(error, where = "error") {
  if (error instanceof TypeError && /fetch|network/i.test(error.message)) return gone(true);
  $(where).hidden = !error;
  $(where).textContent = error ? error.message ?? error : "";
}

function make(tag, properties = {}, ...inside) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...inside);
  return made;
}

// ---- Photos in

async function submit(files) {
  complain(null);
  files = [...files];
  const each = $("apart").checked && files.length > 1 ? files.map((file) => [file]) : [files];
  let last, sent = 0;
  try {
    for (const some of each) {
      if (some.length > limits.photos) throw new Error(`At most ${limits.photos} photos of one thing, please; these are ${some.length}.`);
      const size = some.reduce((sum, file) => sum + file.size, 0);
      if (size > limits.upload_bytes) throw new Error(`At most ${limits.upload_bytes / 1e6} MB at a time, please; these are ${Math.ceil(size / 1e6)} MB.`);
      const form = new FormData();
      some.forEach((file) => form.append("photos", file, file.name));
      if ($("whole").checked) form.append("align", "false");
      last = await send("/infer", form, each.length === 1);
      sent += 1;
    }
  } catch (error) {
    complain(sent ? `${sent} of ${each.length} photos were taken. ${error.message}` : error);
    refresh();
  }
  if (last && each.length > 1) open(last.id);
}

async function send(path, form, show = true) {
  const job = await post(path, form);
  if (show) open(job.id);
  return job;
}

$("file").addEventListener("change", (event) => (submit(event.target.files), (event.target.value = "")));
$("example").addEventListener("click", () => {
  const form = new FormData();
  form.append("example", "1");
  if ($("whole").checked) form.append("align", "false");
  complain(null);
  send("/infer", form).catch(complain);
});
addEventListener("dragover", (event) => (event.preventDefault(), $("drop").classList.add("over")));
addEventListener("dragleave", (event) => event.relatedTarget || $("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  if (event.dataTransfer.files.length) ($("people").hidden ? submit : probes)(event.dataTransfer.files);
});

// ---- One job

function open(id) {
  source?.close();
  stop();
  [current, shown, more] = [id, {}, null];
  for (const name of ["live", "found", "more", "mark", "files", "notes", "choose", "warnings", "chains"]) $(name).hidden = true;
  $("mark").open = false;
  document.querySelector("[name=tool][value=brush]").checked = true;
  history.replaceState(null, "", `#${id}`);
  source = new EventSource(`${API}/results/${id}/events`);
  source.onmessage = (event) => show(JSON.parse(event.data));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED || !shown.state || !ENDED.includes(shown.state)) json("/status").catch(() => {});
  };
  refresh();
}

function show(job) {
  if (job.id !== current || job.kind !== "infer") return job.kind === "recognize" ? showPeople(job) : undefined;
  const before = shown;
  shown = job;
  const ended = ENDED.includes(job.state);
  if (ended) source.close();
  $("job").hidden = false;
  $("job-title").textContent = job.title;
  $("cancel").hidden = $("progress").hidden = ended;
  const words = { done: "Done.", failed: `It failed: ${job.text}`, cancelled: "Cancelled." };
  if (job.state !== before.state) $("said").textContent = words[job.state] ?? (job.state === "waiting" ? job.text : "Being inferred.");
  if (job.state === "waiting") $("said").textContent = job.text;
  $("said").classList.toggle("warn", job.state === "failed");
  $("doing").textContent = job.state === "waiting" ? "" : job.text;
  if (job.sweep && !ended) $("bar").value = Math.min(job.sweep / job.sweeps, 1) * 0.9;
  else $("bar").removeAttribute("value");
  if (ended) $("provisional").textContent = "a first guess";
  if (job.live) showChains(job);
  else if (ended) $("chains").hidden = true;
  if (job.faces?.length > 1 && job.size && !(before.faces && before.size)) showFaces(job);
  if (job.surface && job.surface.file !== before.surface?.file) showSurface(job).catch(complain);
  if (job.surface?.final && job.lights && !before.lights) showFound(job);
  if (job.more && !before.more) showMore(job).catch(complain);
  if (job.files && !before.files) showFiles(job);
  if ((job.size || ended) && $("mark").hidden && job.state !== "cancelled") ($("mark").hidden = false), ($("marks").dataset.of = "");
  if (job.state === "failed" && before.state !== "failed") $("mark").open = document.querySelector("[name=tool][value=box]").checked = true;
  if (job.state !== before.state) refresh();
}

$("cancel").addEventListener("click", () => api(`/results/${current}/cancel`, { method: "POST" }).catch(complain));

function showChains(job) {
  $("chains").hidden = false;
  const { rows, columns } = job.live;
  for (const name of ["albedo", "normals"]) {
    const canvas = $(`live-${name}`), pen = canvas.getContext("2d"), bytes = atob(job.live[name]);
    [canvas.width, canvas.height] = [columns, rows];
    const image = pen.createImageData(columns, rows), deep = name === "normals" ? 3 : 1;
    for (let p = 0; p < rows * columns; p++) {
      for (let c = 0; c < 3; c++) image.data[4 * p + c] = bytes.charCodeAt(deep * p + (deep === 3 ? c : 0));
      image.data[4 * p + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
    canvas.style.aspectRatio = job.surface?.aspect ?? columns / rows;
  }
  const rhat = job.rhat ? `R-hat is ${job.rhat.toFixed(3)} so far, of energy and lights; at 1.01 everywhere the chains agree.` : "Too early for R-hat.";
  $("rhat").textContent = `The surface at the model's own size, as the chains have it now. ${rhat}`;
}

function showFaces(job) {
  $("choose").hidden = false;
  const image = make("img", { src: `${API}/results/${current}/photo`, alt: "The photo, with the faces found in it" });
  const boxes = job.faces.map((corners, i) => {
    const xs = corners.map((c) => c[0]), ys = corners.map((c) => c[1]), [width, height] = job.size;
    const box = make("button", { type: "button", title: `face ${i + 1}` }, make("span", { textContent: i + 1 }));
    box.setAttribute("aria-label", `Take face ${i + 1}`);
    box.setAttribute("aria-pressed", i === job.face);
    const part = (low, high, all) => [`${(100 * low) / all}%`, `${(100 * (high - low)) / all}%`];
    [box.style.left, box.style.width] = part(Math.min(...xs), Math.max(...xs), width);
    [box.style.top, box.style.height] = part(Math.min(...ys), Math.max(...ys), height);
    box.addEventListener("click", () => {
      if (i !== job.face) again({ face: i });
    });
    return box;
  });
  $("faces").replaceChildren(image, ...boxes);
}

// ---- A new light

async function showSurface(job) {
  const { surface } = job, numbers = new Float32Array(await (await api(`/results/${job.id}/view/${surface.file}`)).arrayBuffer());
  if (job.id !== current || (shown.surface?.final && !surface.final)) return;  // something better has come meanwhile
  const count = 3 * surface.width * surface.height;
  const given = { ...surface, normals: numbers.subarray(0, count), colour: numbers.subarray(count) };
  $("which").replaceChildren(...surface.lights.map((_, i) => make("option", { value: i, textContent: `photo ${i + 1}` })));
  $("which-label").hidden = surface.lights.length < 2;
  $("stage").style.aspectRatio = surface.aspect;
  $("stage").style.maxWidth = `min(100%, ${72 * surface.aspect}vh)`;
  if (!window.dln) prepare();
  if ($("live").dataset.of !== job.id) $("reset").click();  // another photo is first seen as it was lit
  window.dln.load(given);
  $("live").dataset.of = job.id;
  $("live").hidden = false;
  $("provisional").hidden = surface.final;
  $("provisional").textContent = ENDED.includes(shown.state) ? "a first guess" : "a first guess, which is being made better";
  Object.assign($("before"), { src: view(surface.before), hidden: false });
  slide();
  document.dispatchEvent(new Event("relightable"));
}

// Made before there is a photo, of one pixel: a browser takes a while to prepare its first drawing.
function prepare() {
  const [normals, colour] = [[0, 0, 1], [1, 1, 1]].map((values) => Float32Array.from(values));
  window.dln = relighter({ width: 1, height: 1, aspect: 1, srgb: true, lights: [[0, 0, 1]], normals, colour });
  $("live").hidden = true;
  watchLight();
}

function slide() {
  const part = $("slide").valueAsNumber;
  $("before").style.clipPath = `inset(0 ${100 - part}% 0 0)`;
  $("slide-value").textContent = part ? `${part} % before` : "";
}
$("slide").addEventListener("input", slide);

// Of a black body, by Helland's fit, against that of daylight, and as bright: warm is red, cold is blue.
function tintOf(kelvin) {
  const t = (k) => {
    k /= 100;
    const red = k <= 66 ? 255 : 329.7 * (k - 60) ** -0.1332, blue = k >= 66 ? 255 : k <= 19 ? 0 : 138.5 * Math.log(k - 10) - 305;
    const green = k <= 66 ? 99.47 * Math.log(k) - 161.1 : 288.1 * (k - 60) ** -0.0755;
    return [red, green, blue].map((v) => (Math.min(Math.max(v, 1), 255) / 255) ** 2.2);
  };
  const day = t(6500), found = t(kelvin).map((v, i) => v / day[i]);
  const bright = 0.2126 * found[0] + 0.7152 * found[1] + 0.0722 * found[2];
  return found.map((v) => v / bright);
}

function warm() {
  const kelvin = $("kelvin").valueAsNumber;
  $("kelvin-value").textContent = `${kelvin} K`;
  window.dln?.setTint(kelvin === 6500 ? [1, 1, 1] : tintOf(kelvin));
}
$("kelvin").addEventListener("input", warm);
$("reset").addEventListener("click", () => (($("kelvin").value = 6500), ($("slide").value = 0), warm(), slide()));

// Whatever moves the light writes its direction: then the other views follow.
function watchLight() {
  warm();
  const follow = () => (space?.light({ ...window.dln.state }), page());
  new MutationObserver(follow).observe($("direction"), { childList: true });
  for (const name of ["kelvin", "ambient", "intensity", "reset"]) $(name).addEventListener("input", follow);
  $("reset").addEventListener("click", follow);
}

$("relit").addEventListener("click", async () => {
  const { light, tint, ambient, intensity } = window.dln.state;
  const asked = { light: light.map((c) => c * intensity), ambient: ambient * intensity, colour: tint };
  try {
    const answer = await api(`/results/${current}/relight`, { method: "POST", body: JSON.stringify(asked) });
    const link = make("a", { download: "relit-photo.png", href: URL.createObjectURL(await answer.blob()) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) {
    complain(error);
  }
});

// ---- What was found

function showFound(job) {
  const { pictures, aspect } = job.surface, spread = Object.fromEntries(job.spreads.map((each) => [each.name, each]));
  const figure = (name, title, words) => {
    const image = make("img", { src: view(pictures[name]), alt: title });
    image.style.aspectRatio = aspect;
    return make("figure", {}, image, make("figcaption", {}, make("b", { textContent: title }), words));
  };
  const unsure = (name) => `Yellow is unsure. Half of the points: at most ${spread[name].typical.toPrecision(2)}${spread[name].unit}.`;
  const maps = [
    figure("albedo", "Albedo", "What it is like, whatever the light."),
    figure("normals", "Normals", "Redder faces right, greener up, bluer you."),
    ...job.lights.map((light, i) => {
      const ball = make("canvas", { width: 96, height: 96, className: "sphere" });
      ball.setAttribute("role", "img");
      ball.setAttribute("aria-label", `A ball lit from ${light.direction}`);
      paintBall(ball, light.light);
      const title = job.lights.length > 1 ? `Light of photo ${i + 1}` : "Light";
      return make("figure", {}, ball, make("figcaption", {}, make("b", { textContent: title }), `${light.direction}, ±\u00a0${light.across.toFixed(0)}°`));
    }),
    ...Object.keys(pictures).filter((name) => name.startsWith("shadow")).map((name, i) =>
      figure(name, job.lights.length > 1 ? `Shadow of photo ${i + 1}` : "Shadow", `White is not lit: ${(100 * job.unlit[i]).toFixed(0)} % of it.`)),
    figure("albedo_std", "Uncertainty of the albedo", unsure("albedo")),
    figure("normals_std", "Uncertainty of the normals", unsure("normals")),
  ];
  $("maps").replaceChildren(...maps);
  $("found").hidden = false;
  const list = (items) => items.map((each) => make("li", { textContent: each[0].toUpperCase() + each.slice(1) }));
  $("note-list").replaceChildren(...list(job.notes));
  $("notes").hidden = !job.notes.length;
  $("warnings").hidden = !job.warnings.length;
  $("warning-list").replaceChildren(...list(job.warnings));
  $("longer").hidden = !job.warnings.some((words) => words.includes("iterations"));
}

function paintBall(canvas, light) {
  const size = canvas.width, pen = canvas.getContext("2d"), image = pen.createImageData(size, size);
  const length = Math.hypot(...light) || 1, [lx, ly, lz] = light.map((c) => c / length);
  for (let p = 0; p < size * size; p++) {
    const x = (2 * (p % size) + 1) / size - 1, y = 1 - (2 * Math.floor(p / size) + 1) / size, rr = x * x + y * y;
    if (rr > 1) continue;
    const tone = 255 * (0.05 + 0.9 * Math.max(x * lx + y * ly + Math.sqrt(1 - rr) * lz, 0)) ** 0.6;
    image.data.set([tone, tone, tone, 127 * size * (1 - Math.sqrt(rr))], 4 * p);
  }
  pen.putImageData(image, 0, 0);
}

// ---- In space, and what else it could be

async function showMore(job) {
  const { rows, columns, samples, file } = job.more, { srgb } = job.surface, of = job.id;
  const numbers = new Float32Array(await (await api(`/results/${of}/view/${file}`)).arrayBuffer());
  if (of !== current) return;
  const count = rows * columns, part = (first, deep) => numbers.subarray(first * count, (first + deep) * count);
  more = { rows, columns, srgb, colour: part(4, 3), samples: Array.from({ length: samples }, (_, k) => part(7 + 3 * k, 3)) };
  $("more").hidden = false;
  space ??= spaceView($("space"));
  if (space) space.load({ heights: part(0, 1), normals: part(1, 3), colour: part(4, 3), rows, columns, srgb });
  else $("space-help").textContent = "This browser has no WebGL, which the view in space needs.";
  if (space && window.dln) space.light({ ...window.dln.state });
  [$("sample").max, $("sample").value] = [samples - 1, 0];
  page();
}

let playing = 0;
function stop() {
  clearInterval(playing);
  playing = 0;
  $("play").textContent = "Play";
  $("play").setAttribute("aria-pressed", false);
}
$("play").addEventListener("click", () => {
  if (playing) return stop();
  playing = setInterval(() => (($("sample").value = ($("sample").valueAsNumber + 1) % more.samples.length), page()), 350);
  $("play").textContent = "Stop";
  $("play").setAttribute("aria-pressed", true);
});
$("sample").addEventListener("input", page);

function page() {
  if (!more || !window.dln) return;
  const canvas = $("book"), { rows, columns, colour, srgb } = more, normals = more.samples[$("sample").valueAsNumber];
  if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows];
  const { light, tint, ambient, intensity } = window.dln.state, pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows);
  const encode = (v) => (v <= 0.0031308 ? v * 12.92 : 1.055 * v ** (1 / 2.4) - 0.055);
  for (let p = 0, i = 0; p < rows * columns; p++, i += 3) {
    const [a, b, c] = [normals[i], normals[i + 1], normals[i + 2]];
    const lit = intensity * (Math.max(a * light[0] + b * light[1] + c * light[2], 0) + ambient * Math.sqrt(a * a + b * b + c * c));
    for (let k = 0; k < 3; k++) {
      const value = Math.min(Math.max(lit * colour[i + k] * tint[k], 0), 1);
      image.data[4 * p + k] = 255 * (srgb ? encode(value) : value);
    }
    image.data[4 * p + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  $("sample-value").textContent = `${$("sample").valueAsNumber + 1} of ${more.samples.length}`;
}

// ---- Files, and earlier results

function showFiles(job) {
  $("zip").href = `${API}/results/${job.id}/zip`;
  const link = (name) => make("a", { href: `${API}/results/${job.id}/files/${encodeURIComponent(name)}`, textContent: name, download: name });
  $("list").replaceChildren(...job.files.map((name) => make("li", {}, link(name))));
  $("files").hidden = false;
  $("relit").hidden = false;
}

let timer = 0;
async function refresh() {
  clearTimeout(timer);
  const jobs = await json("/results").catch(() => null);
  timer = setTimeout(refresh, jobs?.some((job) => !ENDED.includes(job.state)) ? 1500 : 6000);
  if (!jobs) return;
  $("earlier").hidden = !jobs.length;
  const words = (job) => (job.state === "waiting" ? job.text : job.state === "running" ? "running" : job.state);
  const items = jobs.map((job) => {
    const button = make("button", { type: "button" });
    if (job.picture) button.append(make("img", { src: `${API}/results/${job.id}/view/${job.picture}`, alt: "" }));
    button.append(make("span", {}, job.title, make("small", { textContent: words(job) })));
    button.setAttribute("aria-current", job.id === current);
    button.addEventListener("click", () => (tab(job.kind === "recognize" ? "people" : "photos"), open(job.id), scrollTo({ top: 0 })));
    return make("li", {}, button);
  });
  const now = JSON.stringify([jobs, current]);
  if ($("results").dataset.now !== now) {
    const focused = [...$("results").children].findIndex((item) => item.contains(document.activeElement));
    $("results").replaceChildren(...items);
    $("results").dataset.now = now;
    if (focused >= 0) $("results").children[focused]?.firstChild.focus();
  }
  return jobs;
}

// ---- Marks on the photo: what does not count, and where the face is

const marked = new Map();  // what was painted for a job: its canvas and its box
let photo = null, marks = null, box = null, cursor = [0.5, 0.5], from = null;
$("mark").addEventListener("toggle", async () => {
  if (!$("mark").open || $("marks").dataset.of === current) return;
  const of = ($("marks").dataset.of = current);
  photo = marks = box = null;
  try {
    const found = await createImageBitmap(await (await api(`/results/${of}/photo`)).blob());
    if (of !== current) return;
    photo = found;
  } catch (error) {
    return complain(error);
  }
  [$("marks").width, $("marks").height] = [photo.width, photo.height];
  marks = Object.assign(document.createElement("canvas"), { width: photo.width, height: photo.height });
  const earlier = marked.get(of);
  if (earlier) marks.getContext("2d").drawImage(earlier.marks, 0, 0);
  box = earlier?.box ?? null;
  drawMarks();
});

const tool = () => document.querySelector("input[name=tool]:checked").value;
const brush = () => ($("width").valueAsNumber / 200) * Math.max(photo.width, photo.height);

function drawMarks() {
  const pen = $("marks").getContext("2d");
  pen.globalAlpha = 1;
  pen.drawImage(photo, 0, 0);
  pen.globalAlpha = 0.6;
  pen.drawImage(marks, 0, 0);
  pen.globalAlpha = 1;
  pen.lineWidth = Math.max(2, photo.width / 300);
  pen.strokeStyle = "#ffb52e";
  if (box) pen.strokeRect(...box);
  if (document.activeElement === $("marks")) {
    pen.beginPath();
    pen.arc(cursor[0] * photo.width, cursor[1] * photo.height, brush(), 0, 7);
    pen.stroke();
  }
}

function paint(x, y) {
  const pen = marks.getContext("2d");
  pen.globalCompositeOperation = tool() === "eraser" ? "destination-out" : "source-over";
  pen.fillStyle = "#d0021b";
  pen.beginPath();
  pen.arc(x, y, brush(), 0, 7);
  pen.fill();
}

function reach(event) {
  const edge = $("marks").getBoundingClientRect();
  const x = ((event.clientX - edge.left) / edge.width) * photo.width, y = ((event.clientY - edge.top) / edge.height) * photo.height;
  cursor = [x / photo.width, y / photo.height];
  if (tool() !== "box") {
    const [a, b] = from ?? [x, y], steps = Math.max(1, Math.ceil(Math.hypot(x - a, y - b) / brush()));
    for (let i = 1; i <= steps; i++) paint(a + ((x - a) * i) / steps, b + ((y - b) * i) / steps);
    from = [x, y];
  } else {
    from ??= [x, y];
    box = [Math.min(x, from[0]), Math.min(y, from[1]), Math.abs(x - from[0]), Math.abs(y - from[1])];
  }
  drawMarks();
}
$("marks").addEventListener("pointerdown", (event) => {
  if (!photo) return;
  $("marks").setPointerCapture(event.pointerId);
  from = null;
  reach(event);
});
$("marks").addEventListener("pointermove", (event) => $("marks").hasPointerCapture(event.pointerId) && reach(event));
$("marks").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!photo || (!step && event.key !== " ")) return;
  event.preventDefault();
  if (step) cursor = cursor.map((at, i) => Math.min(Math.max(at + 0.02 * step[i], 0), 1));
  else if (tool() !== "box") paint(cursor[0] * photo.width, cursor[1] * photo.height);
  else box = [(cursor[0] - 0.15) * photo.width, (cursor[1] - 0.2) * photo.height, 0.3 * photo.width, 0.4 * photo.height];
  drawMarks();
});
for (const name of ["focus", "blur"]) $("marks").addEventListener(name, () => photo && drawMarks());
$("clear").addEventListener("click", () => {
  if (!marks) return;
  marks.getContext("2d").clearRect(0, 0, marks.width, marks.height);
  box = null;
  drawMarks();
});

// The photos again, with other options. Once marks are shown they are told, even that there are none.
async function again(options) {
  const form = new FormData(), of = current, [width, height] = shown.size ?? [photo?.width, photo?.height];
  for (const [name, value] of Object.entries(options)) form.append(name, value);
  complain(null);
  try {
    const told = marks && $("marks").dataset.of === of;
    if (told) {
      const drawn = box && box[2] > 4 && box[3] > 4;
      if (!("face" in options)) form.append("box", drawn ? box.map((v) => ((v * width) / photo.width).toFixed(1)).join(",") : "");
      const painted = marks.getContext("2d").getImageData(0, 0, marks.width, marks.height).data.some((v) => v);
      if (painted) form.append("mask", await maskOf(width, height), "mask.png");
      else form.append("mask", "");
    }
    $("mark").open = false;
    const job = await send(`/results/${of}/again`, form);
    if (told) marked.set(job.id, { marks, box });
    else if (marked.has(of)) marked.set(job.id, marked.get(of));
    scrollTo({ top: 0 });
  } catch (error) {
    complain(error);
  }
}

// What is painted, as a picture of the photo's size: white where it counts.
function maskOf(width, height) {
  const mask = Object.assign(document.createElement("canvas"), { width, height }), pen = mask.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, width, height);
  pen.filter = "brightness(0)";
  pen.drawImage(marks, 0, 0, width, height);
  return new Promise((done) => mask.toBlob(done, "image/png"));
}

$("again").addEventListener("click", () => again({}));
$("as-it-is").addEventListener("click", () => again({ align: "false" }));
$("longer").addEventListener("click", () => again({ iterations: 2 * shown.sweep }));

// ---- Who is it?

const people = { gallery: [], probe: [] };
function listPeople() {
  const rows = people.gallery.map((each) => {
    const name = make("input", { type: "text", value: each.name, oninput: (event) => (each.name = event.target.value) });
    name.setAttribute("aria-label", `Name of the person on ${each.file.name}`);
    return make("li", {}, name, make("span", { textContent: each.file.name }));
  });
  $("gallery-list").replaceChildren(...rows);
  $("probe-list").replaceChildren(...people.probe.map((file) => make("li", {}, make("span", { textContent: file.name }))));
  $("recognize").disabled = people.gallery.length < 2 || !people.probe.length;
}
function probes(files) {
  people.probe = [...files];
  listPeople();
}
$("gallery").addEventListener("change", (event) => {
  const stem = (name) => name.replace(/\.[^.]*$/, "").replace(/[-_ ]*\d+$/, "");
  people.gallery = [...event.target.files].map((file) => ({ file, name: stem(file.name) || file.name }));
  listPeople();
});
$("probe").addEventListener("change", (event) => probes(event.target.files));
$("recognize").addEventListener("click", async () => {
  const form = new FormData();
  for (const { file, name } of people.gallery) form.append("gallery", file, file.name), form.append("names", name);
  people.probe.forEach((file) => form.append("probe", file, file.name));
  if ($("cropped").checked) form.append("align", "false");
  complain(null, "people-error");
  try {
    open((await post("/recognize", form)).id);
  } catch (error) {
    complain(error, "people-error");
  }
});
$("people-cancel").addEventListener("click", () => api(`/results/${current}/cancel`, { method: "POST" }).catch(complain));

function showPeople(job) {
  const ended = ENDED.includes(job.state), changed = job.state !== shown.state;
  shown = job;
  if (ended) source.close();
  $("job").hidden = true;
  $("people-cancel").hidden = ended;
  $("people-said").textContent = { done: "Done.", failed: "", cancelled: "Cancelled." }[job.state] ?? job.text;
  complain(job.state === "failed" ? job.text : null, "people-error");
  const percent = (share) => (share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
  const cards = (job.answers ?? []).map((answer) => {
    const title = answer.problem ?? (answer.label === "unknown" ? "nobody of these, most likely" : answer.label);
    const card = make("article", { className: "answer" }, make("h3", { textContent: `${answer.probe}: ${title}` }));
    if (answer.problem) return card;
    const row = make("div", { className: "row" }, make("figure", {}, make("img", { src: view(answer.picture), alt: `The face on ${answer.probe}` }), make("figcaption", {}, make("b", { textContent: "The photo" }), "as the model sees it")));
    answer.ranked.forEach((each, i) => {
      const pair = make("div", { className: "pair" },
        make("img", { src: view(each.lit), alt: `${each.name} under the photo's light` }),
        make("img", { src: view(each.rest), alt: `What ${each.name} leaves unexplained` }));
      const words = `${percent(each.probability)}, distance ${each.distance.toPrecision(2)}`;
      row.append(make("figure", {}, pair, make("figcaption", {}, make("b", { textContent: `${i + 1}. ${each.name}` }), words)));
    });
    card.append(row, make("p", { className: "soft", textContent: "Left: the person under this photo's light. Right: what that leaves of the photo; grey is nothing." }));
    return card;
  });
  cards.push(...(job.left_out ?? []).map((words) => make("p", { className: "warn", textContent: `Left out of the gallery: ${words}` })));
  if ($("answers").childElementCount !== cards.length || ended) $("answers").replaceChildren(...cards);
  if (changed) refresh();
}

// ---- Tabs, and the start

function tab(name) {
  for (const each of ["photos", "people"]) {
    $(each).hidden = each !== name;
    $(`tab-${each}`).setAttribute("aria-selected", each === name);
    $(`tab-${each}`).tabIndex = each === name ? 0 : -1;
  }
}
for (const each of ["photos", "people"]) {
  $(`tab-${each}`).addEventListener("click", () => tab(each));
  $(`tab-${each}`).addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const other = each === "photos" ? "people" : "photos";
    tab(other);
    $(`tab-${other}`).focus();
  });
}

(async () => {
  if (location.search) history.replaceState(null, "", `/${location.hash}`);  // the cookie has the token now
  const status = await json("/status").catch(complain);
  if (!status) return;
  limits = status.limits;
  $("about").textContent = `model ${status.model}`;
  const jobs = (await refresh()) ?? [];
  const wanted = jobs.find((job) => job.id === location.hash.slice(1)) ?? jobs.find((job) => job.state === "running");
  if (wanted) (tab(wanted.kind === "recognize" ? "people" : "photos"), open(wanted.id));
  setTimeout(() => window.dln ?? prepare());
})();
