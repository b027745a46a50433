// What is shown of a plan, its profile, its estimates and a comparison. Every number is the service's.

import { around, bars, hundred, hundredKey, lines, make, number, table } from "./charts.js";
import { ACCOUNTANTS, BASELINES, PARTS, UNITS, VIEWS, atMost, counted, oneIn, shown, storage, words } from "./words.js";

const place = (id) => document.getElementById(id);
const list = (id, items) => place(id).replaceChildren(...items.map((item) => make("li", {}, ...[item].flat())));

export function showPlan(plan) {
  showPromise(plan);
  showTiles(plan);
  showObservers(plan);
  showLadder(plan);
  showError(plan);
  showReasons(plan);
}

const inView = (plan, view) => plan.guarantees.filter((one) => one.view === view);

/** The guarantee of all that one person contributes: with separate labels it is not the first, which is the vector's. */
const whole = (plan) => inView(plan, "communication").find((one) => one.adjacency === "replace-one") ?? plan.guarantees[0];

const unitOf = (adjacency) => UNITS[adjacency]?.[0] ?? adjacency;

function showPromise(plan) {
  const { epsilon, delta, adjacency } = whole(plan);
  const shares = inView(plan, "communication").filter((one) => one.adjacency !== adjacency);
  const rest = delta === 0 ? ["."] : [", plus at most ", number(delta), ` (δ: ${oneIn(delta)}).`];
  const factor = make("data", { value: String(Math.exp(epsilon)) }, shown(Math.exp(epsilon), 3));
  const { releases = 1 } = plan.request;
  place("promise").replaceChildren(
    `Whatever ${unitOf(adjacency)} any one person has${releases > 1 ? ` in all ${counted(releases)} releases together` : ""} changes the chance of anything that an observer of all shuffled messages can see by at most a factor of `,
    factor, " (e", make("sup", {}, "ε"), " with ε\u00a0=\u00a0", number(epsilon), ")", ...rest,
    ...shares.flatMap((one, i) => [`${i ? "," : " Of this ε:"} ${unitOf(one.adjacency)}\u00a0`, number(one.epsilon)]), shares.length ? "." : "",
  );
  place("unit").textContent = `${UNITS[adjacency]?.[1] ?? ""} The others may have any vectors, and the observer may know all of them.`;
  for (const one of document.querySelectorAll("[data-separate]")) one.hidden = !shares.length;
  const alone = inView(plan, "local").find((one) => one.adjacency === adjacency);
  const collusion = !alone || alone.delta >= 1
    ? "A shuffler that colludes with the analyzer sees messages that nothing protects."
    : ["If the shuffler colludes with the analyzer, only ε\u00a0=\u00a0", number(alone.epsilon), " remains."];
  list("unpromised", [
    "That a person takes part, and how many do, is not a secret.",
    collusion,
    "What is true of people in general will be learned: that is the purpose.",
    "Further releases about the same people add up.",
  ]);
}

/** How far the proof is: "waiting", or what came out, with a note. */
export function showProof(state, text, note = "") {
  place("proof").dataset.state = state;
  place("proof").replaceChildren(make("span", {}, ...[text].flat()));
  place("proof-note").textContent = note;
}

/** What a certificate says, with the versions of what proved it. */
export function showCertificate({ proved, notes, versions }) {
  const by = Object.entries(versions).map((one) => one.join(" ")).join(", ");
  if (!proved.holds) {
    const known = proved.epsilon === null ? [] : [`only ε ≤ ${atMost(proved.epsilon)} is`];
    showProof("none", "not proved", `${["Not proved", ...known, ...notes].join("; ")}.`);
    return;
  }
  const bound = make("data", { value: String(proved.epsilon) }, atMost(proved.epsilon));
  showProof("proved", ["proved: ε ≤ ", bound, " in ball arithmetic"], `Proved again with laws of its own by the checker of ${by}; “privkde verify” repeats it.`);
}

function showTiles(plan) {
  const { error, communication, instance, composition } = plan;
  const [[name, first]] = Object.entries(instance.parameters);
  const { releases = 1 } = plan.request, once = releases > 1 ? ", one release" : "";
  const over = releases > 1 ? ` in ${counted(releases)} releases` : "";
  const tiles = [
    ["Predicted error of a density", number(error.predicted_rmse), `upper bound, root mean square${once}`],
    ["Noise of one sum", number(error.bitsum_rmse), `root mean square, ${counted(plan.request.users)} users${once}`],
    [capital(words(name)), number(first), `${plan.bitsum}, accounted for by ${plan.accountant}`],
    [`Messages per user${once}`, number(communication.messages_per_user), `a user’s data touch ${counted(composition.instances_per_user)} bits${over}`],
    [`Sent by each user${once}`, [number(communication.bits_per_user), " bits"], storage(communication.bits_per_user)],
  ];
  place("tiles").replaceChildren(...tiles.map(([head, value, note]) =>
    make("div", {}, make("dt", {}, head), make("dd", {}, ...[value].flat()), make("dd", { class: "note" }, note))));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function showObservers(plan) {
  const units = [whole(plan), ...plan.guarantees].map((one) => one.adjacency), views = Object.keys(VIEWS);
  const order = (one) => 10 * units.indexOf(one.adjacency) + views.indexOf(one.view);
  const rows = [...plan.guarantees].sort((a, b) => order(a) - order(b)).map((one, i) => ({
    main: i === 0,
    cells: [
      VIEWS[one.view] ?? one.view,
      unitOf(one.adjacency),
      one.delta >= 1 ? "no protection" : number(one.epsilon),
      one.delta >= 1 ? "" : number(one.delta),
    ],
  }));
  place("observers").replaceChildren(table(["somebody who sees", "about a person’s", "ε", "δ"], rows, { words: [1] }));
}

function showLadder(plan) {
  const ladder = Object.entries(plan.composition.ladder);
  const promised = plan.guarantees[0].epsilon;
  bars(place("ladder"), {
    title: "ε that each rung of the composition ladder proves",
    description: ladder.map(([name, value]) => `${name}: ${value === null ? "does not apply" : shown(value)}`).join("; "),
    rows: ladder.map(([name, value]) => ({ name, value, marked: name === plan.accountant, note: name === plan.accountant ? "used" : "" })),
    log: true,
    mark: { value: promised, label: `promised ε = ${shown(promised)}` },
    heads: ["ε"],
    absent: "does not apply, or proves nothing",
  });
  list("rungs", ladder.map(([name]) => [make("b", {}, name), `: ${ACCOUNTANTS[name] ?? ""}`]));
}

export function showProfile(plan, profile) {
  const [{ epsilon, delta }] = plan.guarantees;
  const positive = (points) => points.filter(([x, y]) => x > 0 && y > 0);
  const series = [
    { name: "promised", label: "promised", points: positive(profile.promised) },
    ...Object.entries(profile.curves).map(([name, points]) => ({
      name, label: name + (name === plan.accountant ? " (used)" : ""), points: positive(points),
    })),
  ];
  const xs = series.flatMap((one) => one.points.map(([x]) => x));
  const floor = delta > 0 ? delta / 1000 : 1e-12;
  const low = Math.max(Math.min(...xs), epsilon / 30), high = Math.max(...xs, epsilon * 2);
  lines(place("profile"), {
    title: "Privacy profile: δ for every ε",
    description: `The promise is δ = ${shown(delta)} at ε = ${shown(epsilon)}. Curves: ${series.map((one) => one.label).join(", ")}.`,
    series, xLabel: "ε", yLabel: "δ", xRange: [low, high], yRange: [10 ** Math.floor(Math.log10(floor)), 1],
    mark: delta > 0 ? { x: epsilon, y: delta, label: `(${shown(epsilon)}, ${shown(delta)})` } : null,
    heads: ["curve", "ε", "δ"],
  });
  showRisk(plan, profile.risk);
}

const outOfHundred = (rate) => shown(100 * rate, 3);

function showRisk(plan, risk) {
  const unit = unitOf(whole(plan).adjacency);
  const [record, by] = unit === "vector" ? [unit, unit] : [`record (${unit})`, "record"];
  const whom = (of) => risk.filter((one) => one.of === of);
  const views = whom("record").map(({ false_positive_rate: wrong, true_positive_rate: right }) => {
    const found = make("data", { value: String(right) }, outOfHundred(right));
    const said = `at most ${outOfHundred(right)} of 100 found, ${outOfHundred(wrong)} by guessing`;
    return make(
      "div", { class: "risk" },
      hundred(Math.ceil(100 * right - 1e-9), Math.round(100 * wrong), `Attack with ${outOfHundred(wrong)} % false accusations`, said),
      make("p", {}, `A test that wrongly accuses ${outOfHundred(wrong)} in 100 recognizes at most `, make("b", {}, found, " of 100"),
        ` people by their ${by}. Guessing finds ${outOfHundred(wrong)}.`),
    );
  });
  place("risk").replaceChildren(
    make("p", { class: "soft" }, `Somebody who suspects that a person’s ${record} is a certain one, and knows everything else, does no better than this.`),
    ...views,
    hundredKey([["guess", "by guessing"], ["found", "more, at most"], ["person", "not found"]]),
    ...partsAlone(["vector", "label"].filter((of) => whom(of).length).map((of) => [of, whom(of)])),
  );
}

/** Parts of a record on their own: what tests of each recognize. */
function partsAlone(found) {
  if (!found.length) return [];
  const heads = found[0][1].map((one) => `with ${outOfHundred(one.false_positive_rate)} wrongly accused`);
  const cells = ([of, tests]) => [of, ...tests.map(({ true_positive_rate: right }) => make("data", { value: String(right) }, outOfHundred(right)))];
  return [table(["", ...heads], found.map((one) => ({ cells: cells(one) })), { caption: "Recognized by one part alone, at most, of 100" })];
}

function showError(plan) {
  const parts = Object.entries(plan.error.parts);
  const [largest] = parts.reduce((best, one) => (one[1] > best[1] ? one : best));
  const [name, remedy] = PARTS[largest] ?? [words(largest), ""];
  place("parts-note").textContent = `Mostly: ${name}; ${remedy}.`;
  bars(place("parts"), {
    title: "Parts of the predicted error",
    description: parts.map(([part, value]) => `${words(part)}: ${shown(value)}`).join("; "),
    rows: parts.map(([part, value]) => ({ name: shortPart(part), value, marked: part === largest })),
    heads: ["root mean square"],
  });
  place("baselines-note").hidden = !(plan.error.parts.labels > 0 && plan.baselines.length);
  const own = { name: "this plan: shuffler", value: plan.error.bitsum_rmse, total: plan.error.predicted_rmse, marked: true };
  const others = plan.baselines.map((one) => ({ name: BASELINES[one.name] ?? one.name, value: one.bitsum_rmse, total: one.predicted_rmse }));
  const rows = [...others.slice(0, 1), own, ...others.slice(1)];
  bars(place("baselines"), {
    title: "Noise of one sum: this plan and the baselines",
    description: rows.map((row) => `${row.name}: ${shown(row.value)}, predicted error ${shown(row.total)}`).join("; "),
    rows: rows.map((row) => ({ ...row, note: `density ${shown(row.total)}`, more: [row.total] })),
    log: true, heads: ["noise of one sum", "predicted error of a density"],
  });
}

const shortPart = (part) => ({ bias: "bias", feature: "features", rounding: "rounding", privacy: "privacy", labels: "labels" })[part] ?? words(part);

function showReasons(plan) {
  list("reasons", plan.reasons);
  const { instance, composition } = plan;
  const rows = [
    ...Object.entries(instance.parameters).map(([name, value]) => [words(name), number(value, 6)]),
    ["ε₀ of one bit", number(instance.epsilon_0)],
    ["δ₀ of one bit", number(instance.delta_0)],
    ["bits that one user touches", number(composition.instances_per_user)],
    ["largest error, Theorem 3.2", number(plan.error.sup_rmse_bound)],
  ];
  place("parameters").replaceChildren(table(["", "value"], rows.map((cells) => ({ cells }))));
  const found = { assumed: new Set(), checked: new Set() };
  const collect = (contract) => {
    for (const key of Object.keys(found)) contract[key].forEach((text) => found[key].add(text));
    contract.parts.forEach(collect);
  };
  plan.contracts.forEach(collect);
  list("assumed", [...found.assumed]);
  list("checked", [...found.checked]);
}

/** Error against users or ε; points: Map from a value to an outcome, null where refused, undefined while unknown. */
export function showAgainst(id, name, points, now, measure) {
  const known = [...points].filter(([, outcome]) => outcome && outcome[measure] !== null).map(([x, outcome]) => [x, outcome[measure]]);
  const refused = [...points].filter(([, outcome]) => outcome === null || (outcome && outcome[measure] === null)).map(([x]) => x);
  const xs = [...points.keys()];
  if (!known.length) return;
  const total = measure === "predicted_rmse", what = total ? "predicted error" : "noise of one sum";
  const privacy = total ? [...points].filter(([, outcome]) => outcome?.parts?.privacy > 0).map(([x, { parts }]) => [x, parts.privacy]) : [];
  const parted = privacy.length > 0;
  const label = name === "users" ? "users" : "ε";
  const inWords = (some) => some.map(([x, y]) => `${label} ${shown(x)}: ${shown(y)}`).join("; ");
  lines(place(id), {
    title: `${capital(what)} against ${label}`,
    description: inWords(known) + (parted ? `; of it noise for privacy: ${inWords(privacy)}` : "") + (refused.length ? `; refused at ${refused.map((x) => shown(x)).join(", ")}` : ""),
    series: [
      { name: "estimate", label: what, points: known, dots: true },
      ...(parted ? [{ name: "privacy", label: "of it: noise for privacy", points: privacy, dots: true }] : []),
    ],
    xLabel: label, yLabel: parted ? "error" : what, xRange: [Math.min(...xs), Math.max(...xs)], yRange: around([...known, ...privacy].map(([, y]) => y)),
    now: { x: now, y: points.get(now)?.[measure] }, height: 240, legend: parted, heads: parted ? ["curve", label, "error"] : [label, what], gaps: refused,
  });
}

export function showComparison(comparison, plan) {
  const titles = { rungs: "By each rung", bitsums: "With each bitsum protocol", labels: "Labels, for the same total ε" };
  const used = { rungs: plan?.accountant, bitsums: plan?.bitsum, labels: plan?.request.labels };
  const tables = Object.entries(titles).filter(([key]) => comparison[key]?.length).map(([key, caption]) => {
    const rows = comparison[key];
    const noises = rows.map((row) => row.noise).filter((noise) => noise !== null);
    const measure = key === "labels" ? "predicted_rmse" : "noise";
    const least = Math.min(...rows.map((row) => row[measure] ?? Infinity));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table(
      ["", "noise of one sum of features", "predicted error", "messages per user"],
      rows.map((row) => ({
        main: row.name === used[key],
        cells: row.refusal !== null
          ? [nameOf(key, row), { across: 3, content: row.refusal }]
          : [
            [...nameOf(key, row), noises.length > 1 && row[measure] === least ? make("span", { class: "tag" }, key === "labels" ? "least error" : "least noise") : null].filter(Boolean),
            number(row.noise), number(row.predicted_rmse), number(row.messages_per_user),
          ],
      })),
      { caption },
    ));
  });
  place("comparison").replaceChildren(...tables);
}

function nameOf(key, row) {
  const { epsilon, label_epsilon: label } = row.request;
  if (key === "labels") return [`${row.name}: ε = ${shown(epsilon)}${label === null ? "" : `, of it ${shown(label)} for the label`}`];
  const proof = key === "rungs" && ACCOUNTANTS[row.name];
  return [row.name, proof ? make("span", { class: "soft roomy" }, `: ${proof}`) : null].filter(Boolean);
}
