"use strict";
// The editor: line numbers, marks where a problem is, and a verdict that follows the typing; the form's fields change the text in place.
(() => {
  const form = document.querySelector("form[data-plan]");
  if (!form) return;
  const PAUSE_MS = 300;
  const PENDING_MS = 700;
  const MAX_FILE_BYTES = 1 << 20;
  const text = form.querySelector("textarea[name=yaml]");
  const lines = form.querySelector(".editor .lines");
  const verdict = form.querySelector("[data-verdict]");
  const note = form.querySelector("[data-edit-note]");

  function number() {
    const count = text.value.split("\n").length;
    while (lines.children.length > count) lines.lastChild.remove();
    while (lines.children.length < count) {
      const line = document.createElement("span");
      line.textContent = String(lines.children.length + 1);
      lines.append(line);
    }
    lines.scrollTop = text.scrollTop;
  }

  function go(line, column) {
    const before = text.value.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    const end = text.value.indexOf("\n", before);
    text.focus();
    text.setSelectionRange(before + Math.max(0, column - 1), end < 0 ? text.value.length : end);
    text.scrollTop = Math.max(0, (line - 6) * (lines.scrollHeight / Math.max(1, lines.children.length)));
  }

  function mark() {
    for (const line of lines.children) {
      line.className = "";
      line.title = "";
    }
    for (const input of form.querySelectorAll("[data-field]:is(input, select)")) input.removeAttribute("aria-invalid");
    for (const problem of verdict.querySelectorAll("[data-line]")) {
      const line = lines.children[Number(problem.dataset.line) - 1];
      if (line) {
        line.className = "bad";
        line.title = problem.textContent;
        line.onclick = () => go(Number(problem.dataset.line), Number(problem.dataset.column));
      }
      const input = form.querySelector(`:is(input, select)[data-field="${CSS.escape(problem.dataset.field.replace(/\[\d+\]$/, ""))}"]`);
      if (input) input.setAttribute("aria-invalid", "true");
    }
  }

  // The place's fields are put there anew where there is something else to choose from; whoever is in one stays in it, and whoever
  // writes in one is not interrupted.
  function place() {
    const now = form.querySelector("[data-place]");
    const next = verdict.querySelector("template[data-place-new]")?.content.querySelector("[data-place]");
    if (!now || !next || now.dataset.key === next.dataset.key) return;
    const inside = now.contains(document.activeElement) ? document.activeElement : null;
    if (inside && inside.matches("input:not([type=checkbox])")) return;
    const field = inside && inside.dataset.field;
    now.replaceWith(next);
    if (field) form.querySelector(`[data-place] [data-field="${field}"]`)?.focus();
  }

  // The fields show what the text says, but for the one that is being written in.
  function fields() {
    const island = verdict.querySelector("[data-form]");
    if (!island) return;
    const { values, nodes, workloads, groups } = JSON.parse(island.textContent);
    place();
    for (const [name, text] of Object.entries(values)) {
      const input = form.querySelector(`:is(input, select)[data-field="${name}"]`);
      if (!input || input === document.activeElement) continue;
      if (input.dataset.unless !== undefined) {
        input.checked = text !== input.dataset.unless;
        continue;
      }
      // A field for numbers cannot show what is none; the text does, and is marked.
      const value = input.type === "number" && !/^\d+(\.\d+)?$/.test(text) ? "" : text;
      if (input.value !== value && !input.querySelector("[data-given]")) input.value = value;
    }
    for (const box of form.querySelectorAll("[data-node]")) box.checked = nodes.includes(box.dataset.node);
    for (const { id, chosen } of workloads) {
      const box = form.querySelector(`[data-workload="${CSS.escape(id)}"]`);
      if (box) box.checked = chosen;
    }
    const also = form.querySelector("[data-groups]");
    also.hidden = groups.length === 0;
    also.querySelector("span").textContent = groups.join(", ");
  }

  function times() {
    if (!globalThis.fourcornersCharts) return;
    for (const element of verdict.querySelectorAll("time[datetime]:not([title])")) {
      element.title = element.textContent;
      element.textContent = globalThis.fourcornersCharts.at(new Date(element.dateTime));
    }
  }

  function startable() {
    const barred = verdict.querySelector("[data-line], .blocker") !== null;
    for (const button of form.querySelectorAll("[data-start]")) button.disabled = barred;
  }

  const body = (more) => new URLSearchParams([["csrf", form.elements.csrf.value], ...more]);
  let asked = 0;
  let timer = 0;

  async function check(anew = false) {
    asked += 1;
    const mine = asked;
    clearTimeout(timer);
    verdict.classList.add("stale");
    try {
      const cache = form.elements.cache ? form.elements.cache.value : "";
      const answer = await fetch(form.dataset.check, { method: "POST", body: body([["yaml", text.value], ["cache", cache], ["anew", anew ? "yes" : ""]]) });
      if (mine !== asked) return;
      if (!answer.ok) throw new Error(answer.status === 422 ? "the cache size is not understood (400GB, 1.5TiB)" : answer.status === 401 || answer.status === 403 ? "log in again" : `the server answered ${answer.status}`);
      verdict.innerHTML = await answer.text();
      fields();
      mark();
      times();
      form.dataset.checked = String(mine);
      startable();
      askAgain();
    } catch (error) {
      if (mine !== asked) return;
      verdict.textContent = `Not checked: ${error.message}.`;
    }
    verdict.classList.remove("stale");
  }

  // A cluster that is being asked answers in its own time.
  function askAgain() {
    if (form.querySelector("[data-pending]")) timer = setTimeout(check, PENDING_MS);
  }

  function later() {
    number();
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE_MS);
  }

  function put(yaml) {
    if (yaml === text.value) return;
    text.value = yaml;
    number();
    check();
  }

  // One change after another: each is made in the text that the one before left.
  let queue = Promise.resolve();
  function edit(field, value, chosen) {
    queue = queue.then(async () => {
      note.hidden = true;
      try {
        const answer = await fetch(form.dataset.edit, { method: "POST", body: body([["yaml", text.value], ["field", field], ["value", value], ["chosen", String(chosen)]]) });
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const { yaml, why } = await answer.json();
        if (why) throw new Error(why);
        put(yaml);
      } catch (error) {
        note.textContent = `The field was not taken over: ${error.message}.`;
        note.hidden = false;
      }
    });
  }

  // Heard at the form: the fields of the place come and go.
  form.addEventListener("change", ({ target }) => {
    const { field, workload, node, unless } = target.dataset;
    if (workload !== undefined) edit("workloads", workload, target.checked);
    else if (node !== undefined) edit("target.nodes", node, target.checked);
    else if (unless !== undefined) edit(field, String(target.checked), true);
    else if (field !== undefined) edit(field, target.value, true);
  });
  // Enter in a field takes it over; only the buttons send the form.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.matches("input")) return;
    event.preventDefault();
    event.target.dispatchEvent(new Event("change", { bubbles: true }));
  });
  const upload = form.querySelector("[data-upload]");
  if (upload) {
    upload.addEventListener("change", async () => {
      const [file] = upload.files;
      if (!file) return;
      if (file.size > MAX_FILE_BYTES) {
        note.textContent = `${file.name} has ${file.size} bytes; a plan has ${MAX_FILE_BYTES} at most.`;
        note.hidden = false;
        return;
      }
      put(await file.text());
      upload.value = "";
    });
  }
  const cache = form.querySelector("[data-cache]");
  if (cache) cache.addEventListener("input", later);
  verdict.addEventListener("click", (event) => {
    if (event.target.closest("[data-anew]")) check(true);
    const problem = event.target.closest("[data-go]");
    if (problem) go(Number(problem.parentElement.dataset.line), Number(problem.parentElement.dataset.column));
  });
  text.addEventListener("input", later);
  text.addEventListener("scroll", () => {
    lines.scrollTop = text.scrollTop;
  });
  number();
  mark();
  startable();
  askAgain();
})();
