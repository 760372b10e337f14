// Makes the console quicker to use; nothing in it is needed to decide a case.
"use strict";

const root = document.documentElement;
const ONE_YEAR = 365 * 24 * 60 * 60; // seconds
const POLL_EVERY = 5000; // milliseconds, as the page says beside the switch

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector, within = document) => within.querySelector(selector);

function remember(name, value) {
  document.cookie = `${name}=${value}; path=/; max-age=${value ? ONE_YEAR : 0}; samesite=lax`;
}

function say(words) {
  const toast = one("#said");
  toast.textContent = words;
  setTimeout(() => { toast.textContent = ""; }, 2500);
}

// Decision panels: the server renders each as a form; here it opens as a modal instead of a new page.

function openPanel(panel) {
  if (panel.open) panel.close();
  panel.showModal();
  const wanted = ["[autofocus], [aria-invalid]", "[required]", "textarea, input:not([type=hidden])"];
  wanted.map((selector) => one(selector, panel)).find(Boolean)?.focus();
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  const closer = event.target.closest("[data-closes]");
  const panel = opener && document.getElementById(opener.dataset.opens);
  if (panel && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    closeMenus();
    openPanel(panel);
  } else if (closer?.closest("dialog:modal")) {
    event.preventDefault();
    closer.closest("dialog").close();
  } else if (!event.target.closest(".menu")) {
    closeMenus();
  }
});

function closeMenus() {
  for (const menu of all("details.menu[open]")) menu.open = false;
}

for (const panel of all("dialog[open]")) openPanel(panel);

// A draft outlives the page it was typed on, in this tab only, until the server says that it is recorded.

function draftKey(field) {
  return `draft ${field.dataset.draft}`;
}

for (const { dataset } of all("[data-recorded]")) {
  const done = Object.keys(sessionStorage).filter((key) => key.startsWith(dataset.recorded));
  for (const key of done) sessionStorage.removeItem(key);
}
for (const field of all("[data-draft]")) {
  if (!field.value) field.value = sessionStorage.getItem(draftKey(field)) ?? "";
}
document.addEventListener("input", ({ target }) => {
  if (target.dataset?.draft) sessionStorage.setItem(draftKey(target), target.value);
});

// Keys open panels and move the focus; none of them submits. Enter on a focused row is the link's own.

function moveInRows(step) {
  const links = all("[data-rows] .first > a");
  const here = links.findIndex((link) => link === document.activeElement);
  const next = here < 0 ? (step > 0 ? 0 : links.length - 1) : here + step;
  links[Math.min(Math.max(next, 0), links.length - 1)]?.focus();
}

const keys = {
  j: () => moveInRows(1),
  k: () => moveInRows(-1),
  "/": () => one("#search")?.focus(),
  "?": () => openPanel(one("#keys")),
  a: () => press("a"),
  r: () => press("r"),
  c: () => press("c"),
};

function press(key) {
  one(`[data-key="${key}"]:not([disabled], [aria-disabled="true"])`)?.click();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeMenus();
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  const chord = event.ctrlKey || event.metaKey || event.altKey;
  if (root.dataset.shortcuts === "off" || typing || chord || one("dialog:modal")) return;
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

// Copying: the page shows an identifier shortened, the clipboard gets it whole.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    say("Copied");
  } catch {
    say("Not copied: the browser did not allow it");
  }
});

// Preferences are cookies, so that the server's first paint is right; without a script the same forms post.

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-prefers]");
  if (!button) return;
  event.preventDefault();
  prefer(button.name, button.value);
  for (const sibling of all(`[data-prefers][name="${button.name}"]`)) {
    sibling.setAttribute("aria-pressed", String(sibling.value === button.value));
  }
});

const attributes = { theme: "theme", shortcuts: "shortcuts", live: "liveUpdates" };

function prefer(name, value) {
  remember(name, value);
  if (value) root.dataset[attributes[name]] = value;
  else delete root.dataset[attributes[name]];
}

for (const select of all("[data-submits]")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}

// Live regions ask for news on the body's "live" event. They stay silent while nobody looks,
// while live updates are paused, and while a form is open, so that nothing moves under a decision.

setInterval(() => {
  const paused = root.dataset.liveUpdates === "off";
  if (document.hidden || paused || one("dialog[open]") || !window.htmx) return;
  window.htmx.trigger(document.body, "live");
}, POLL_EVERY);

function showNotice(id, shown) {
  const notice = document.getElementById(id);
  if (notice) notice.hidden = !shown;
}

document.addEventListener("htmx:responseError", ({ detail }) => {
  showNotice("signed-out", detail.xhr.status === 401);
  showNotice("out-of-touch", detail.xhr.status >= 500);
});
document.addEventListener("htmx:sendError", () => showNotice("out-of-touch", true));
document.addEventListener("htmx:afterOnLoad", ({ detail }) => {
  if (detail.xhr.status < 400) showNotice("out-of-touch", false);
});
