// Modes: describes the effect of a change before it is made, and lists past changes.

import { put } from "./api.js";
import { field, openDialog } from "./dialog.js";
import { $, foreign, h, nothing, refill, visible } from "./dom.js";
import { ago, clock, count, plural } from "./format.js";
import { idle, refusals } from "./state.js";

const NAME = "tollgate-by";
const RANK = { off: 0, shadow: 1, enforce: 2 };
const SHOWN = 8;
const MOST_SHOWN = 200;

const remembered = () => {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
};

const remember = (name) => {
  try {
    localStorage.setItem(NAME, name);
  } catch {
    // It must be typed again then.
  }
};

/** What a frozen shedder keeps. */
const KEPT = { "shed.node": "its level", "shed.throttle": "the share of requests that it does not send" };

/** Describes the effect of a mode change on requests. `all` is the mode of everything. */
function consequence(limit, stats, to, all) {
  const name = `\`${visible(limit.name)}\``;
  const goal = to === "policy" || to === "frozen" ? limit.policy_mode : to;
  const weakened = RANK[all] < RANK[goal];
  const lines = [];
  if (to === "frozen")
    lines.push(
      `${name} keeps ${KEPT[limit.name] ?? "its learned number of slots"}, however the load changes, until it is switched again or the server restarts.`,
    );
  else if (limit.isShedder && goal === "off")
    lines.push(`${name} will refuse no request, however large the load is.`);
  else if (goal === limit.mode && !weakened)
    lines.push(
      `${name} is in this mode now: nothing changes for requests.${to === "policy" || limit.switched ? "" : " The switch holds whatever the file comes to say."}`,
    );
  else if (weakened) {
    lines.push(`Everything is switched to ${all}, which is weaker: ${name} stays ${all} until that is taken back.`);
  } else if (goal === "off") {
    lines.push(
      `${name} will be neither checked nor counted. Requests that it would refuse will pass, and what they spend is not remembered.`,
    );
  } else if (goal === "shadow") {
    lines.push(
      `Requests that ${name} would refuse will pass. They are still counted, and shown as refusals in shadow.`,
    );
  } else {
    lines.push(`${name} will refuse requests again as soon as a key has nothing left.`);
  }
  const [no, would] = [refusals(stats), stats.shadow_limited];
  if (goal !== "enforce" && no > 0)
    lines.push(`${plural(no, "request was", "requests were")} refused by it in the last 5 minutes.`);
  if (goal === "enforce" && would > 0)
    lines.push(`In the last 5 minutes it would have refused ${plural(would, "request")}.`);
  if (limit.candidate_of && goal === "enforce")
    lines.push(`It is a candidate, tried beside \`${visible(limit.candidate_of)}\`: both will then refuse.`);
  return lines;
}

function consequenceOfAll(data, to) {
  const of = data.figures;
  const lines = [];
  if (to === data.overview.mode) lines.push("This is the mode now: nothing changes.");
  else if (to === "off")
    lines.push("No limit will be checked or counted.");
  else if (to === "shadow")
    lines.push("No limit will refuse. Requests are still counted, and refusals are shown as refusals in shadow.");
  else lines.push("Each limit will do what its own switch or the file says, and refuse again where that is enforce.");
  if (to !== "enforce") {
    const deny = data.policy?.deny ?? 0;
    const who = deny > 0 ? ` (${plural(deny, "entry", "entries")}): whoever is on it is refused all the same` : "";
    lines.push(`The deny list is no limit and stays in force${who}.`);
  }
  if (to !== "enforce" && of.refused > 0)
    lines.push(`${plural(of.refused, "request was", "requests were")} refused in the last 5 minutes.`);
  if (to === "enforce" && of.shadow > 0)
    lines.push(`In the last 5 minutes ${plural(of.shadow, "request")} would have been refused.`);
  return lines;
}

const CHOICES = [
  ["enforce", "Enforce", "refuses what is too much"],
  ["shadow", "Shadow", "counts, and lets everything pass"],
  ["off", "Off", "neither checks nor counts"],
  ["frozen", "Frozen", "keeps what it has learned as it is now"],
  ["policy", "As the file says", ""],
];

/** The shedder of this name as a limit. Of the shedders, only the fleet shedder is one: it learns nothing. */
function shedderOf(overview, name) {
  const found = { "shed.node": overview?.shed?.node, "shed.throttle": overview?.shed?.throttle }[name];
  return found && { ...found, name, switched: found.switch !== "policy", isShedder: true };
}

/** The limit of this name, with the override if it learns its number of slots. */
function limitOf(data, name) {
  const limit = data.limits.find((it) => it.name === name);
  const learned = data.overview?.adaptive?.find((it) => it.limit === name);
  return limit && learned ? { ...limit, switch: learned.switch, isLearned: true } : limit;
}

/** Asks for a mode of one limit, or of everything if `name` is null, and makes the change. */
export function openSwitch(data, name, done) {
  const limit = name === null ? null : (limitOf(data, name) ?? shedderOf(data.overview, name));
  if (name !== null && !limit) return;
  const admin = data.overview?.role === "admin";
  const now = limit ? limit.mode : data.overview.mode;
  const title = limit ? h("span", null, "Mode of ", foreign(name, "")) : "Mode of everything";
  const { dialog, body } = openDialog("box", title);
  const words = h("div", { class: "consequence", "aria-live": "polite" });
  const wrong = h("p", { class: "notice bad", role: "alert", hidden: true });
  const reason = h("input", {
    type: "text",
    maxlength: "300",
    autocomplete: "off",
    placeholder: "INC-412: checkout is refused",
  });
  const by = h("input", { type: "text", maxlength: "100", autocomplete: "off" });
  by.value = remembered();
  const submit = h("button", { class: "button strong" }, "Switch");
  const isOffered = (it) => (it === "frozen" ? limit?.isShedder || limit?.isLearned : limit || it !== "policy");
  const radios = CHOICES.filter(([it]) => isOffered(it)).map(([value, label, hint]) => {
    const input = h("input", { type: "radio", name: "mode", value });
    const chosen = limit?.switch === "frozen" ? "frozen" : now;
    input.checked = limit?.switched === false ? value === "policy" : value === chosen;
    const more =
      value === "policy"
        ? limit.switched
          ? `${limit.policy_mode}; takes the switch back`
          : `${limit.policy_mode}, and follows its changes`
        : limit || value !== "enforce"
          ? hint
          : "each limit as it says";
    return h(
      "label",
      { class: "choice" },
      input,
      h("span", null, h("strong", null, label), h("small", { class: "muted" }, ` ${more}`)),
    );
  });
  const chosen = () => form.elements.mode.value;
  const form = h(
    "form",
    { method: "dialog" },
    h("fieldset", { class: "choices", disabled: !admin }, h("legend", { class: "unseen" }, "Mode"), radios),
    words,
    field("Reason", reason, "Kept with the change."),
    field("Your name", by, "Kept with the change, and in this browser."),
    wrong,
    admin ? null : h("p", { class: "notice" }, "You are signed in as a reader. Switching needs the admin token."),
    h(
      "div",
      { class: "actions" },
      h("button", { class: "button", type: "button", onclick: () => dialog.close() }, "Cancel"),
      submit,
    ),
  );
  const tell = () => {
    const to = chosen();
    const lines = limit
      ? consequence(limit, data.statsOf(name) ?? idle, to, data.overview.mode)
      : consequenceOfAll(data, to);
    words.replaceChildren(...lines.map((it) => h("p", null, it)));
    const same = limit
      ? to === "policy"
        ? !limit.switched
        : limit.switched && to === (limit.switch === "frozen" ? "frozen" : limit.mode)
      : to === data.overview.mode;
    submit.disabled = !admin || same;
    submit.textContent = to === "policy" ? "Take the switch back" : `Switch to ${to}`;
    submit.classList.toggle("danger", to === "off");
  };
  form.addEventListener("change", tell);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    wrong.hidden = true;
    remember(by.value.trim());
    try {
      const path = limit ? `v1/limits/${encodeURIComponent(name)}/mode` : "v1/mode";
      const told = await put(path, { mode: chosen(), reason: reason.value.trim(), by: by.value.trim() });
      dialog.close();
      const kept = told.persisted === null ? " It holds until the server restarts: no state folder is configured." : "";
      const what = limit ? `\`${visible(name)}\` is now ${told.mode}` : `Everything is now ${told.mode}`;
      done(`${what}, was ${told.before}.${kept}`, told.warning);
    } catch (error) {
      wrong.textContent = `Not switched: ${visible(error.message)}`;
      wrong.hidden = false;
      submit.disabled = false;
    }
  });
  body.append(form);
  tell();
  form.querySelector("input:checked")?.focus();
}

/** The mode of everything. */
export function showEverything(data, open) {
  const { mode, role, policy } = data.overview;
  const deny = data.policy?.deny ?? 0;
  const lists = deny > 0 ? " The deny list stays in force." : "";
  const mark = `${mode} ${role} ${policy.switched} ${lists}`;
  refill($("everything-body"), mark, () => {
    const hint = {
      enforce:
        policy.switched > 0
          ? `Each limit as it says; ${plural(policy.switched, "limit is", "limits are")} switched by hand.`
          : "Each limit does what the file says.",
      shadow: `Nothing is refused by a limit. Requests are still counted.${lists}`,
      off: `No limit is checked or counted.${lists}`,
    }[mode];
    const button = h(
      "button",
      { class: "button", type: "button", id: "switch-everything", disabled: role !== "admin", onclick: open },
      "Switch …",
    );
    return [
      h(
        "div",
        { class: "everything" },
        h("span", { class: "mode big", "data-mode": mode }, mode),
        h("span", { class: "everything-hint" }, hint),
        button,
      ),
      role === "admin"
        ? null
        : h("p", { class: "muted hint" }, "Signed in as a reader: switches need the admin token."),
    ];
  });
}

let shown = SHOWN;
/** A limit without an override has the mode of the file. */
const word = (mode) => (mode === "policy" ? "as the file" : mode);

/** The recorded changes, newest first. */
export function showChanges(changes) {
  const body = $("changes-body");
  const mark = `${changes.length} ${changes[0]?.at} ${shown} ${Math.floor(Date.now() / 60_000)}`;
  const focused = body.contains(document.activeElement);
  const filled = refill(body, mark, () => {
    if (changes.length === 0) return nothing("Nobody has switched anything.");
    const item = (it) =>
      h(
        "li",
        null,
        h(
          "p",
          null,
          it.what === "everything" ? h("strong", null, "Everything") : foreign(it.limit, "strong"),
          ` ${word(it.from)} → ${word(it.to)}`,
        ),
        it.reason ? h("p", null, h("bdi", { class: "foreign" }, visible(it.reason))) : null,
        h(
          "p",
          { class: "muted" },
          h("time", { datetime: it.at, title: it.at }, `${clock(it.at)}, ${ago(it.at)}`),
          ` · ${visible(it.by || it.certificate || "no name")} · ${it.role}`,
          it.peer ? ` from ${visible(it.peer)}` : null,
          it.by && it.certificate ? [", certificate ", foreign(it.certificate, "")] : null,
        ),
      );
    const more = changes.length > shown && shown < MOST_SHOWN;
    const show = () => {
      shown = MOST_SHOWN;
      showChanges(changes);
    };
    return [
      h("ol", { class: "journal" }, changes.slice(0, shown).map(item)),
      more
        ? h(
            "button",
            { class: "button quiet", type: "button", onclick: show },
            `Show ${count(Math.min(changes.length, MOST_SHOWN) - shown)} more`,
          )
        : null,
    ];
  });
  if (filled && focused) $("changes-title").closest("section").querySelector("button")?.focus();
}
