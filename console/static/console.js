// The pages are whole without this script. It refreshes what is marked data-live, shows a timer's runs while it is typed, and goes on
// with what is done in pages.
"use strict";

const refreshEvery = 5000;

async function refresh() {
  if (document.hidden || document.activeElement?.closest("form")) return;
  const live = document.querySelectorAll("[data-live][id]");
  if (live.length === 0) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html", "Notyet-Refresh": "1" }, redirect: "error" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of live) {
    const now = fresh.getElementById(old.id);
    if (now && now.outerHTML !== old.outerHTML) old.replaceWith(document.adoptNode(now));
  }
}

function keepFresh() {
  setTimeout(() => refresh().catch(() => {}).finally(keepFresh), refreshEvery);
}
keepFresh();

const form = document.querySelector("form[data-preview]");
if (form) {
  const out = document.getElementById("preview");
  let waiting = 0, asked = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const mine = ++asked;
      const body = new URLSearchParams();
      for (const name of ["cron", "every", "timezone"]) body.set(name, form.elements[name].value);
      try {
        const answer = await fetch("/preview", { method: "POST", body, redirect: "error" });
        const text = await answer.text();
        if (mine !== asked || !answer.ok) return;
        out.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
      } catch { /* the runs are shown before the timer is set, too */ }
    }, 300);
  });
}

const more = document.querySelector("form[data-go-on]");
if (more) {
  const going = setTimeout(() => more.requestSubmit(), 300);
  document.getElementById("stop").addEventListener("click", () => clearTimeout(going));
}
