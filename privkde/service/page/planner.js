// The form, its requests, and the state in the address. What is shown of the answers is in results.js.

import { make } from "./charts.js";
import { showAgainst, showCertificate, showComparison, showPlan, showProfile, showProof } from "./results.js";
import { ACCOUNTANTS, LABELS, counted, exact, shown } from "./words.js";

const DEBOUNCE = 100;
const HEAD_START = 0.2; // seconds that a plan waits for its estimate, which is quick and no promise
const IN_FLIGHT = 2;
const RETRIES = 5;
const REST = 1; // seconds without a change, after which a plan is worth a proof
const DEFAULTS = { // what the form starts with; `describe` sets those of the choices
  epsilon: "2", delta: "1e-6", users: "30000", dim: "64", share: "100", colluders: "0", releases: "1", kernel: "", repetitions: "", bitsum: "",
  accountant: "", labels: "none", classes: "10", model: "", max_messages: "", label_epsilon: "", bound: "", bias: "", allow_useless: "",
};
const MANTISSAS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
const STOPS = {
  users: stops(MANTISSAS, 2, 7), epsilon: stops(MANTISSAS, -2, 1).filter((x) => x >= 0.05 && x <= 20), delta: stops([1, 2, 5], -12, -3),
  dim: [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096],
};
const FACTORS = [1, 10 ** (1 / 3), 10 ** (-1 / 3), 10 ** (2 / 3), 10 ** (-2 / 3), 10, 0.1];

const form = document.getElementById("form");
const at = (id) => document.getElementById(id);
const chosen = (name) => document.querySelector(`input[name=${name}]:checked`).value;

let declared = {}; // the names of a request by the OpenAPI document: ranges, choices, defaults, descriptions
let kernels = [], bitsums = [];
let timer = 0, running = null, comparing = null;
let last = null; // {plan, text}: the newest plan and its document as it came
let proof = null; // the newest plan's certificate as it came
let against = null; // {users, epsilon}: estimates of the newest plan

function stops(mantissas, from, to) {
  const listed = [];
  for (let e = from; e <= to; e += 1) for (const m of mantissas) listed.push(Number(`${m}e${e}`));
  return listed.filter((x) => x <= Number(`1e${to}`) || mantissas.length > 3);
}

// --- the service

class Refusal extends Error {
  constructor(problem) {
    super(problem.detail ?? problem.title ?? "the service did not answer as expected.");
    this.problem = problem;
  }
}

const pause = (seconds, signal) => new Promise((resolve, reject) => {
  const waiting = setTimeout(resolve, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(waiting); reject(signal.reason); }, { once: true });
});

/** The text of an answer; asks again while the service is busy, or has enough of this client's to do. */
/** The answer's text; `arrived` is called with what there is of it, if it comes in parts. */
async function ask(path, body, signal, arrived) {
  const options = body === undefined ? { signal } : { method: "POST", headers: { "Content-Type": "application/json" }, body, signal };
  for (let tries = 0; ; tries += 1) {
    let response;
    try {
      response = await fetch(path, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal({ detail: "the service does not answer; is it still running?" });
    }
    const text = response.ok && arrived ? await inParts(response, arrived) : await response.text();
    if (response.ok) return text;
    if (![429, 503].includes(response.status) || tries >= RETRIES) throw new Refusal(parsed(text));
    await pause(Number(response.headers.get("Retry-After")) || 2, signal);
  }
}

async function inParts(response, arrived) {
  let text = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += value;
    arrived(text);
  }
}

/** The rows of a comparison that have arrived as whole lines. */
function begun(text) {
  const lines = text.slice(0, text.lastIndexOf("\n") + 1).trimEnd().replace(/,$/, "");
  for (const end of ["]}", "}"]) {
    const found = parsed(lines + end);
    if (found.schema) return found;
  }
  return {};
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

// --- the form

function values() {
  const entered = {};
  for (const name of Object.keys(DEFAULTS)) {
    const field = form.elements[name];
    entered[name] = field.type === "checkbox" ? (field.checked ? "true" : "") : field.value.trim();
  }
  return entered;
}

function restore(given) {
  for (const [name, value] of Object.entries({ ...DEFAULTS, ...given })) {
    const field = form.elements[name];
    if (field.type === "checkbox") field.checked = value === "true";
    else if (field instanceof RadioNodeList) field.value = Object.hasOwn(LABELS, value) ? value : DEFAULTS[name];
    else if (field.tagName === "SELECT") field.value = [...field.options].some((one) => one.value === value) ? value : DEFAULTS[name];
    else field.value = value;
  }
  at("advanced").open = Boolean(given.bound || given.bias || given.allow_useless);
}

/** The state in the address; empty also if it names nothing that is known. */
function fromAddress() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return Object.fromEntries(Object.entries(given).filter(([name]) => Object.hasOwn(DEFAULTS, name)));
}

/** What differs from the start, and matters. */
function fragment() {
  const now = values();
  const unused = [now.labels === "none" && "classes", ...(now.labels === "joint" ? [] : ["model", "max_messages"]), now.labels !== "separate" && "label_epsilon"];
  return new URLSearchParams(Object.entries(now).filter(([name, value]) => value !== DEFAULTS[name] && !unused.includes(name))).toString();
}

/** The chosen kernel, or the one that `auto` stands for. */
function kernelOf({ kernel, labels }) {
  const name = kernel !== "auto" ? kernel : labels === "joint" ? "inner-product" : "gaussian";
  return kernels.find((one) => one.name === name) ?? {};
}

/** The request of the form, or of the form with other values; throws a Refusal if a number is missing. */
function request(changes = {}) {
  const now = { ...values(), ...changes };
  const kernel = kernelOf(now);
  const numeric = (name, needed = true) => {
    if (now[name] === "" && !needed && !form.elements[name].validity.badInput) return undefined;
    const value = now[name] === "" ? NaN : Number(now[name]);
    if (!Number.isFinite(value)) throw new Refusal({ detail: `${name} is missing or not a number; give one.`, field: name });
    return value;
  };
  const body = { users: numeric("users"), dim: numeric("dim"), epsilon: numeric("epsilon"), delta: numeric("delta"), kernel: now.kernel, bitsum: now.bitsum, accountant: now.accountant };
  if (kernel.takes_repetitions) body.repetitions = numeric("repetitions", false);
  if (now.labels !== "none") {
    body.labels = now.labels;
    body.classes = numeric("classes");
  }
  if (now.labels === "joint") Object.assign(body, { model: now.model, max_messages: numeric("max_messages", false) });
  if (now.labels === "separate") body.label_epsilon = numeric("label_epsilon", false);
  const share = numeric("share"), colluders = numeric("colluders", false) ?? 0, releases = numeric("releases", false) ?? 1;
  if (share !== 100) body.dropout = (100 - share) / 100;
  if (colluders !== 0) body.colluders = colluders;
  if (releases !== 1) body.releases = releases;
  if (kernel.takes_bound) body.bound = numeric("bound", false);
  if (kernel.takes_bias) body.bias = numeric("bias", false);
  if (now.allow_useless) body.allow_useless = true;
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
}

function slide(name) {
  const slider = at(`${name}-slider`), value = Number(at(name).value);
  if (name === "share") {
    slider.value = value;
    slider.setAttribute("aria-valuetext", `${value} %`);
    return;
  }
  const list = STOPS[name];
  const distance = (x) => Math.abs(Math.log(x) - Math.log(Math.max(value, 1e-300)));
  slider.value = list.reduce((best, x, i) => (distance(x) < distance(list[best]) ? i : best), 0);
  slider.setAttribute("aria-valuetext", shown(value));
}

/** On how many users the noise counts, in words. */
function countedOn({ users, classes, labels, dropout = 0, colluders = 0 }) {
  if (!dropout && !colluders) return "Everybody takes part; noise counts on all of them.";
  const separate = labels === "separate", all = separate ? Math.floor(users / classes) : users;
  const heads = (value) => (value < 1 ? value * all : value);
  const least = all - Math.floor(heads(dropout) + heads(colluders) + 1e-6);
  return `Noise counts on ${counted(Math.max(0, least))} users${separate ? " in each class" : ""}.`;
}

/** Everything in the form that follows from the rest of it. */
function settle() {
  const now = values(), kernel = kernelOf(now), joint = now.labels === "joint";
  [...Object.keys(STOPS), "share"].forEach(slide);
  const visible = {
    repetitions: kernel.takes_repetitions, bound: kernel.takes_bound, bias: kernel.takes_bias,
    classes: now.labels !== "none", model: joint, max_messages: joint, label_epsilon: now.labels === "separate",
  };
  for (const [name, yes] of Object.entries(visible)) {
    at(`${name}-field`).hidden = !yes;
    at(name).disabled = !yes;
  }
  at("kernel-note").textContent = now.kernel === "auto" ? `${kernel.name}: ${kernel.description}` : kernel.description ?? "";
  at("bitsum-note").textContent = bitsums.find((one) => one.name === now.bitsum)?.description ?? "";
  at("accountant-note").textContent = ACCOUNTANTS[now.accountant] ?? "";
  at("labels-note").textContent = LABELS[now.labels];
  try {
    at("share-note").textContent = countedOn(request());
  } catch {
    at("share-note").textContent = "";
  }
  const hash = fragment();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  showSnippet();
}

// --- live results

const parts = (name) => document.querySelectorAll(`[data-part=${name}]`);
const stale = (nodes, yes) => nodes.forEach((node) => node.classList.toggle("stale", yes));
const charts = () => [at("against-users"), at("against-epsilon")];

function changed() {
  settle();
  stale([...parts("plan"), ...parts("profile"), ...charts()], true);
  if (at("comparison").hasChildNodes()) stale([at("comparison")], true);
  running?.abort();
  stopComparing();
  clearTimeout(timer);
  busy("Waiting for the last change…");
  timer = setTimeout(refresh, DEBOUNCE);
}

function busy(text) {
  at("spinner").hidden = false;
  at("status").textContent = text;
  at("results").setAttribute("aria-busy", "true");
}

function idle(text) {
  at("spinner").hidden = true;
  at("status").textContent = text;
  at("results").setAttribute("aria-busy", "false");
}

function complain(place, error) {
  place.textContent = error.message;
  place.hidden = false;
}

function clearProblem() {
  at("problem").hidden = true;
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

/** Mark the field that a problem names first: "epsilon=-1.0 is outside …". */
function markField(error) {
  const name = error.problem?.field ?? /^(\w+)=/.exec(error.message)?.[1];
  if (name in DEFAULTS && form.elements[name] instanceof HTMLInputElement) form.elements[name].setAttribute("aria-invalid", "true");
}

async function refresh() {
  running?.abort();
  const controller = new AbortController();
  running = controller;
  const { signal } = controller;
  try {
    const body = request();
    const asked = JSON.stringify(body);
    let planned = false;
    busy("Planning…");
    await Promise.race([foreseen(asked, signal, () => !planned), pause(HEAD_START, signal)]);
    const text = await ask("v1/plan", asked, signal);
    planned = true;
    if (signal.aborted) return;
    const plan = JSON.parse(text);
    last = { plan, text, body };
    clearProblem();
    showPlan(plan);
    unproved();
    stale([...parts("plan")], false);
    at("download").disabled = false;
    const summary = `Predicted error ${shown(plan.error.predicted_rmse)}, ${shown(plan.communication.messages_per_user)} messages per user.`;
    busy(`${summary} Drawing…`);
    await draw(plan, text, body, signal);
    if (signal.aborted) return;
    idle(summary);
    await certify(text, signal);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    clearProblem();
    complain(at("problem"), error);
    markField(error);
    idle(last ? "What is shown is for earlier values." : "No plan yet.");
    at("download").disabled = at("download-proof").disabled = true;
    if (!proof) showProof("late", "not proved");
  }
}

/** First numbers, without the last proof: shown while the plan is on its way. A refusal is the plan's to say. */
async function foreseen(asked, signal, waiting) {
  try {
    const first = JSON.parse(await ask("v1/plan/estimate", asked, signal));
    if (signal.aborted || !waiting() || first.refusal !== null) return;
    const numbers = `predicted error ${shown(first.predicted_rmse)}, ${shown(first.messages_per_user)} messages per user`;
    busy(`Estimate: ${numbers}. Planning…`);
  } catch (error) {
    if (!(error instanceof Refusal) && error.name !== "AbortError") throw error;
  }
}

/** The profile and the estimates, at most two at a time. */
async function draw(plan, text, body, signal) {
  against = { users: new Map(), epsilon: new Map(), body };
  const jobs = [() => profiled(plan, text, signal)];
  for (const factor of FACTORS) {
    for (const name of ["users", "epsilon"]) {
      const x = around(name, body[name], factor);
      if (x === null || against[name].has(x)) continue;
      against[name].set(x, undefined);
      if (factor === 1) against[name].set(x, { predicted_rmse: plan.error.predicted_rmse, bitsum_rmse: plan.error.bitsum_rmse, parts: plan.error.parts });
      else jobs.push(() => estimated(name, x, signal));
    }
  }
  showErrors();
  stale(charts(), false);
  const work = async () => {
    while (jobs.length && !signal.aborted) await jobs.shift()();
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, work));
}

function around(name, value, factor) {
  const { maximum } = declared[name], low = lowest(declared[name]);
  if (name === "users") return Math.min(maximum, Math.max(low, Math.round(Number((value * factor).toPrecision(factor === 1 ? 12 : 2)))));
  const x = factor === 1 ? value : Number((value * factor).toPrecision(2));
  return x > low && x <= maximum ? x : null;
}

function unproved() {
  proof = null;
  at("download-proof").disabled = true;
  showProof("waiting", "being proved…", "A checker with laws of its own is proving the promise in ball arithmetic; this takes seconds.");
}

/** Last of all, and only for a plan that stays: a proof takes seconds. */
async function certify(text, signal) {
  await pause(REST, signal);
  try {
    proof = await ask("v1/certify", `{"plan": ${text}}`, signal);
    if (signal.aborted) return;
    showCertificate(JSON.parse(proof));
    at("download-proof").disabled = false;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const late = error.problem.status === 504;
    showProof(late ? "late" : "none", late ? "proof took too long" : "not proved", `No proof: ${error.message}`);
  }
}

async function profiled(plan, text, signal) {
  try {
    const profile = JSON.parse(await ask("v1/plan/profile", `{"plan": ${text}}`, signal));
    if (signal.aborted) return;
    showProfile(plan, profile);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    for (const id of ["risk", "profile"]) at(id).replaceChildren(make("p", { class: "problem" }, error.message));
  }
  stale([...parts("profile")], false);
}

async function estimated(name, x, signal) {
  let outcome = null;
  try {
    outcome = JSON.parse(await ask("v1/plan/estimate", JSON.stringify(request({ [name]: String(x) })), signal));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
  }
  if (signal.aborted) return;
  against[name].set(x, outcome);
  showErrors();
}

function showErrors() {
  if (!against) return;
  for (const name of ["users", "epsilon"]) {
    const points = new Map([...against[name]].sort(([a], [b]) => a - b));
    showAgainst(`against-${name}`, name, points, against.body[name], chosen("measure"));
  }
}

// --- comparison

function stopComparing() {
  comparing?.abort();
  comparing = null;
  at("compare").textContent = "Compare";
  at("compare-spinner").hidden = true;
  at("compare-status").textContent = at("comparison").hasChildNodes() ? "For earlier values; compare again." : "";
}

async function compare() {
  if (comparing) {
    stopComparing();
    return;
  }
  const controller = new AbortController();
  comparing = controller;
  at("compare").textContent = "Stop";
  at("compare-spinner").hidden = false;
  at("compare-status").textContent = "Comparing…";
  at("compare-problem").hidden = true;
  let status = "";
  try {
    const arrived = (text) => {
      if (controller.signal.aborted) return;
      showComparison(begun(text), last?.plan);
      stale([at("comparison")], false);
    };
    const text = await ask("v1/plan/compare", JSON.stringify(request()), controller.signal, arrived);
    if (controller.signal.aborted) return;
    showComparison(JSON.parse(text), last?.plan);
    stale([at("comparison")], false);
    status = "Compared.";
  } catch (error) {
    if (controller.signal.aborted) return;
    complain(at("compare-problem"), error);
  }
  comparing = null;
  at("compare").textContent = "Compare";
  at("compare-spinner").hidden = true;
  at("compare-status").textContent = status;
}

// --- taking it along

const changedNames = (body) => Object.entries(body).filter(([name, value]) => declared[name].default !== value);
const python = (value) => (value === true ? "True" : typeof value === "string" ? `"${value}"` : Number.isInteger(value) ? String(value).replace(/\B(?=(\d{3})+$)/g, "_") : exact(value));

const SNIPPETS = {
  python: (body) => `from accounting import plan_budget\n\nplan = plan_budget(\n${changedNames(body).map(([name, value]) => `    ${name}=${python(value)},\n`).join("")})\nprint(plan.explain())\n`,
  cli: (body) => ["privkde plan", ...changedNames(body).map(([name, value]) => `--${name.replaceAll("_", "-")}${value === true ? "" : ` ${typeof value === "number" ? exact(value) : value}`}`)].join(" "),
  json: (body) => JSON.stringify(body, null, 2),
  curl: (body) => `curl -s ${new URL("v1/plan", location.href.split("#")[0])} \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(body)}'`,
};

function showSnippet() {
  try {
    at("snippet").textContent = SNIPPETS[chosen("form")](request());
    at("copy").disabled = false;
  } catch (error) {
    at("snippet").textContent = error.message;
    at("copy").disabled = true;
  }
}

async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no secure context, or not allowed
    const area = make("textarea", { readonly: true, class: "hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) said = "Could not copy; select the text instead.";
  }
  at("copied").textContent = said;
}

function download(text, name) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --- start

function listen() {
  for (const [name, list] of Object.entries(STOPS)) {
    const slider = at(`${name}-slider`);
    Object.assign(slider, { min: 0, max: list.length - 1, step: 1 });
    slider.addEventListener("input", () => { at(name).value = exact(list[slider.value]); });
  }
  at("share-slider").addEventListener("input", () => { at("share").value = at("share-slider").value; });
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  at("reset").addEventListener("click", () => { restore({}); changed(); });
  at("compare").addEventListener("click", compare);
  at("copy").addEventListener("click", () => copy(at("snippet").textContent, "Copied."));
  at("share-link").addEventListener("click", () => copy(location.href, "Link copied."));
  at("download").addEventListener("click", () => download(last.text, "plan.json"));
  at("download-proof").addEventListener("click", () => download(proof, "certificate.json"));
  for (const one of document.querySelectorAll("input[name=form]")) one.addEventListener("change", showSnippet);
  for (const one of document.querySelectorAll("input[name=measure]")) one.addEventListener("change", showErrors);
  document.querySelector(".skip").addEventListener("click", skip);
}

/** An address that names nothing known holds no state: the form writes its own there again. */
function followAddress() {
  const given = fromAddress();
  if (location.hash && !Object.keys(given).length) {
    settle();
    return;
  }
  restore(given);
  changed();
}

/** To the results by focus alone: the address keeps the state. */
function skip(event) {
  event.preventDefault();
  at("results").focus({ preventScroll: true });
  at("results").scrollIntoView();
}

const lowest = (field) => field.minimum ?? field.exclusiveMinimum;
const isWhole = (field) => [field, ...(field.anyOf ?? [])].some((part) => part.type === "integer");

/** Limits, choices, defaults and help texts of the form, as the service declares them. */
function describe({ properties, required }) {
  declared = properties;
  for (const [name, field] of Object.entries(declared)) {
    const control = form.elements[name];
    if (!(control instanceof HTMLElement)) continue; // labels are radio buttons
    control.title = field.description;
    control.required = required.includes(name);
    if (control.tagName === "SELECT") {
      control.replaceChildren(...field.enum.map((choice) => make("option", { value: choice }, choice)));
      DEFAULTS[name] = field.default;
    }
    if (control.type === "number") {
      Object.assign(control, { min: lowest(field), max: field.maximum, step: isWhole(field) ? 1 : "any", inputMode: isWhole(field) ? "numeric" : "decimal" });
    }
  }
  for (const hint of document.querySelectorAll("[data-unset]")) hint.textContent = `blank: ${declared[hint.dataset.unset]["x-unset"]}`;
  const words = declared.allow_useless.description;
  at("allow_useless-words").textContent = words[0].toUpperCase() + words.slice(1);
}

async function start() {
  listen();
  busy("Starting…");
  try {
    const answers = await Promise.all(["openapi.json", "v1/kernels", "v1/bitsums"].map((path) => ask(path)));
    const [openapi, families, protocols] = answers.map((text) => JSON.parse(text));
    kernels = families.kernels;
    bitsums = [...protocols.bitsums.filter((one) => one.name !== "auto"), { name: "auto", description: "the least noise, and the fewest messages among those" }];
    describe(openapi.components.schemas.PlanRequest);
    at("version").textContent = `${openapi.info.title} ${openapi.info.version}.`;
  } catch (error) {
    complain(at("problem"), error);
    idle("");
    return;
  }
  window.addEventListener("hashchange", followAddress);
  restore(fromAddress());
  settle();
  refresh();
}

start();
