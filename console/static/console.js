// The pages are whole without this script. It says how old a page is and refreshes it in place, asks
// in dialogs, has keys, and shows a timer's runs while it is typed.
"use strict";

const refreshEvery = 5000, oldAfter = 15000;
const main = document.querySelector("main"), shown = document.getElementById("shown");
const age = document.getElementById("age"), gone = document.getElementById("gone");
const kind = main.dataset.age; // live: it is refreshed; still: it only says its age
// A still page may be a long walk, which nobody repeats. The empty search tells whether service and session are there.
const asked = kind === "live" ? location.href : "/find";
let shownAt = Date.now(), heardAt = shownAt, signedOut = false, why = "", told = "", turn = 0;

// A field named id hides the id of its form.
const key = (node) => node.getAttribute?.("id") || node.dataset?.key || "";

function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// patch makes old equal to fresh, and keeps every element that stays: marks, scroll and focus too.
// Elements with an id or data-key stay themselves wherever they are; others go by their order.
function patch(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old === document.activeElement && old.matches("input, select, textarea")) return;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.hasAttribute("data-kept")) return;
  const keyed = new Map([...old.children].filter(key).map((child) => [key(child), child]));
  const staying = new Set([...fresh.children].map(key).filter((k) => keyed.has(k)));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    let same = keyed.get(key(next));
    while (at && at !== same && (same || key(at)) && !staying.has(key(at))) at = drop(at);
    if (!key(next) && at && !key(at)) same = at;
    if (same?.nodeName !== next.nodeName) {
      old.insertBefore(next, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    patch(same, next);
  }
  while (at) at = drop(at);
}

async function refresh() {
  if (document.hidden) return;
  const ask = { headers: { Accept: "text/html", "Notyet-Refresh": "1" }, redirect: "manual", signal: AbortSignal.timeout(10000) };
  why = "No answer from this service";
  const answer = await fetch(asked, ask);
  signedOut = answer.type === "opaqueredirect" || answer.status === 401;
  why = `The service answers ${answer.status}`;
  if (!answer.ok) return;
  if (kind === "still") {
    heardAt = Date.now();
    return;
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const becomes = fresh.querySelector("main")?.dataset.age;
  if (becomes === "still" && !dialog.open) location.reload();
  if (becomes !== kind) return;
  patch(main, fresh.querySelector("main"));
  patch(shown, fresh.getElementById("shown"));
  shownAt = heardAt = Date.now();
}

function keepFresh() {
  refresh().catch(() => {}).finally(() => {
    tell();
    clearTimeout(turn);
    turn = setTimeout(keepFresh, refreshEvery);
  });
}

// tell says how old the page is. A page whose service does not answer any more says so in a red bar.
function tell() {
  const ms = Date.now() - shownAt, s = Math.round(ms / 1000), ago = s < 120 ? `${s} s ago` : `${Math.round(s / 60)} min ago`;
  const old = Date.now() - heardAt > oldAfter;
  age.textContent = kind === "live" && !old && !signedOut ? `live, ${ago}` : `as of ${ago}`;
  document.body.classList.toggle("old", old || signedOut);
  const state = signedOut ? "out" : old ? why : "";
  if (state === told) return; // a bar that changes is read aloud
  told = state;
  gone.hidden = state === "";
  if (signedOut) {
    const link = document.createElement("a");
    link.href = "/sign-in?next=" + encodeURIComponent(location.pathname + location.search);
    link.textContent = "Sign in";
    gone.replaceChildren("You are signed out · ", link, ". This page is as of " + shown.textContent + ".");
  } else {
    gone.textContent = why + ": this page is as of " + shown.textContent + ". The service is asked again every 5 s.";
  }
}

if (kind) {
  age.hidden = false;
  tell();
  setInterval(tell, 1000);
  turn = setTimeout(keepFresh, refreshEvery);
  document.addEventListener("visibilitychange", () => document.hidden || keepFresh());
}

// Keys act wherever no text is being written, and no dialog is open. The dialog #keys lists them.
const rows = () => [...main.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a, button") && row.checkVisibility());
let going = false; // g was the last key

function step(by) {
  const all = rows(), at = all.indexOf(document.activeElement.closest("tr"));
  all[at < 0 ? 0 : at + by]?.querySelector("a, button").focus();
}

const keys = {
  "/": () => (document.getElementById("seek") ?? document.getElementById("q"))?.focus(),
  "?": () => document.getElementById("keys")?.showModal(),
  j: () => step(1),
  k: () => step(-1),
  x: () => document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click(),
};

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.key === "Shift") return;
  const went = going;
  going = false;
  if (document.querySelector("dialog[open]")) return;
  if (e.target.closest("input:not([type=checkbox]), select, textarea")) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const link = went && document.querySelector(`nav [data-go="${CSS.escape(e.key)}"]`);
  going = e.key === "g" && !link;
  const act = link ? () => link.click() : Object.hasOwn(keys, e.key) && keys[e.key];
  if (!act) return;
  e.preventDefault();
  act();
});

// The box above a table ticks all of it.
for (const all of document.querySelectorAll("th input")) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of all.closest("table").querySelectorAll("td input[type=checkbox]")) box.checked = all.checked;
  });
}

// The question of a deed comes as a dialog over its page. An answer without one is a page.
const dialog = document.createElement("dialog");
document.body.append(dialog);
dialog.addEventListener("click", (e) => {
  if (!e.target.closest("#back")) return;
  e.preventDefault();
  dialog.close();
});
// A key that is still held down since the deed answers no question.
dialog.addEventListener("keydown", (e) => {
  if (e.repeat && e.key === "Enter") e.preventDefault();
});

// blame says a mistake at its field, which stays as it was typed. Without such a field: false.
function blame(fields, problem) {
  const field = fields?.namedItem(problem?.dataset.field ?? "");
  if (!field?.willValidate) return false;
  field.setCustomValidity("This " + problem.textContent.slice(problem.dataset.field.length + 1));
  field.reportValidity();
  for (const change of ["input", "click"]) field.form.addEventListener(change, () => field.setCustomValidity(""), { once: true });
  return true;
}

// Of two deeds, the later one is asked about: its answer may be the first, and would be replaced.
let asking = 0;
async function ask(url, body, otherwise, fields) {
  const mine = ++asking;
  let fresh = null;
  try {
    const answer = await fetch(url, { method: body ? "POST" : "GET", body, headers: { Accept: "text/html" }, redirect: "manual" });
    fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main:has(form[data-back], #problem)");
  } catch { /* the browser says why */ }
  if (mine !== asking) return;
  if (!fresh) return otherwise();
  if (blame(fields, fresh.querySelector("#problem"))) return;
  const title = document.createElement("h2"), old = fresh.querySelector("h1");
  title.textContent = old.textContent;
  old.replaceWith(title);
  if (!fresh.querySelector("#back")) {
    const close = Object.assign(document.createElement("button"), { id: "back", textContent: "Close", autofocus: true });
    fresh.append(close);
  }
  dialog.setAttribute("aria-label", title.textContent);
  dialog.setAttribute("aria-describedby", "question");
  dialog.replaceChildren(...fresh.childNodes);
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("[autofocus]").focus();
}

document.addEventListener("click", (e) => {
  const link = e.target.closest("a[href]");
  if (!link || e.defaultPrevented || e.button || e.ctrlKey || e.metaKey || e.shiftKey || !new URL(link.href).searchParams.has("do")) return;
  e.preventDefault();
  ask(link.href, null, () => { location = link.href; });
});

// A second click asks nothing again while the first one's answer is on its way.
let sent = false, plain = null;
document.addEventListener("submit", (e) => {
  const { target, submitter } = e, post = target.method === "post";
  if (target !== plain && target.method !== "dialog" && (post ? target.hasAttribute("data-asks") : submitter?.name === "do")) {
    e.preventDefault();
    const url = new URL(submitter?.hasAttribute("formaction") ? submitter.formAction : target.action);
    const fields = new URLSearchParams(new FormData(target, submitter));
    if (!post) url.search = fields;
    ask(url, post ? fields : null, () => {
      plain = target;
      target.requestSubmit(submitter);
    }, target.elements);
    return;
  }
  plain = null;
  if (!post) return;
  if (sent) e.preventDefault();
  sent = true;
});
addEventListener("pageshow", () => {
  sent = false;
  dialog.close();
});

// say shows what the service makes of a text while it is typed. The question says it, too.
function say(typed, out, path, fields) {
  let waiting = 0, asked = 0;
  typed.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const mine = ++asked;
      try {
        const answer = await fetch(path, { method: "POST", body: new URLSearchParams(fields()), redirect: "error" });
        const text = await answer.text();
        if (mine === asked && answer.ok) out.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
      } catch { /* the next key asks again */ }
    }, 300);
  });
}

const form = document.querySelector("form[data-preview]");
if (form) {
  const names = ["topic", "id", "cron", "every", "timezone"];
  say(form, document.getElementById("preview"), "/preview", () => names.map((name) => [name, form.elements[name]?.value ?? ""]));
}
for (const out of document.querySelectorAll("output")) {
  const field = document.getElementById(out.htmlFor);
  say(field, out, "/when", () => ({ time: field.value }));
}

// The browser knows the zones' names.
const zones = document.getElementById("zones");
document.getElementById("zone")?.addEventListener("focus", () => {
  zones.replaceChildren(...(Intl.supportedValuesOf?.("timeZone") ?? []).map((name) => new Option(name, name)));
}, { once: true });

// A question that came with a form too large for an address would be asked for again by Back.
const question = document.querySelector("form[data-back]");
if (question && !location.search) history.replaceState(null, "", question.dataset.back);
