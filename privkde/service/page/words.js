// Words and the shape of numbers: nothing here computes a privacy parameter.

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** 10⁻⁶. */
export function power(exponent) {
  const digits = [...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[digit]).join("");
  return `10${exponent < 0 ? "⁻" : ""}${digits}`;
}

/** A number for people: 0.125, 3,017, 10⁻⁶, 2.5 × 10⁻⁷. */
export function shown(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return value.toLocaleString("en-US", { maximumSignificantDigits: digits });
  if (size >= 1e6 && size < 1e10 && Number.isInteger(value) && value % 1000 === 0) return value.toLocaleString("en-US");
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const lead = String(Number(mantissa));
  return lead === "1" ? power(Number(exponent)) : `${lead} × ${power(Number(exponent))}`;
}

/** A positive bound for people: never less than it is. */
export function atMost(value, digits = 5) {
  const unit = 10 ** (digits - 1 - Math.floor(Math.log10(value)));
  const rounded = Math.ceil(value * unit) / unit;
  return shown(rounded >= value ? rounded : (Math.ceil(value * unit) + 1) / unit, digits);
}

/** A count in full: 30,000. */
export const counted = (value) => value.toLocaleString("en-US");

/** A number as a program reads it back, to the last digit. */
export function exact(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e15) ? value.toExponential().replace("e+", "e") : String(value);
}

/** "1 in 1,000,000" for a small probability. */
export const oneIn = (value) => `1 in ${shown(1 / value)}`;

export function storage(bits) {
  const bytes = bits / 8;
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= size) return `${shown(bytes / size, 3)} ${unit}`;
  }
  return `${shown(bytes, 3)} bytes`;
}

export const words = (name) => name.replaceAll("_", " ");

export const ACCOUNTANTS = {
  auto: "the tightest proof that applies",
  paper: "published calibration, advanced composition",
  basic: "exact law, ε and δ added up",
  advanced: "exact law, advanced composition",
  pld: "exact law, exact composition",
  geometric: "how far one user moves all bits together",
};

export const LABELS = {
  none: "One density of all users.",
  separate: "One density for each class; labels are randomized on their own, with a part of ε.",
  joint: "One collection for all classes; ε protects vector and label together.",
};

export const UNITS = {
  "replace-one": ["vector and label", "Everything one person contributes, replaced by anything else."],
  "replace-one-features": ["vector", "One person’s vector, replaced by any other vector."],
  "replace-one-label": ["label", "One person’s label, replaced by any other label."],
};

export const VIEWS = {
  communication: "all shuffled messages",
  model: "what is published",
  local: "a user’s own messages (shuffler colludes)",
};

export const PARTS = {
  bias: ["bias of the kernel’s approximation", "set by the kernel: by β, or by clipping at R"],
  feature: ["finitely many features", "falls with more repetitions"],
  rounding: ["rounding to bits", "falls with more users"],
  privacy: ["noise for privacy", "falls with more users, and with a larger ε"],
  labels: ["randomized labels", "falls with a larger ε of the label; joint labels have none"],
};

export const BASELINES = { central: "central: trusted analyzer", local: "local: nobody trusted" };
