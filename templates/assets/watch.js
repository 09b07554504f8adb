"use strict";
// Follows a run: takes the feed's messages into a state of bounded size and shows it at most once a second. Whatever happens here, the run goes on.
(() => {
  const page = document.querySelector("[data-watch]");
  if (!page) return;
  const { theme, axis, layout, heading, logarithmic, timeTicks, clock, at: localTime } = globalThis.fourcornersCharts;
  const RECENT = 300;
  const LOG_LINES = 200;
  const SHAPES = 80;
  const LONGEST_WAIT_MS = 30000;
  // A second is told up to 4 s after it began; 3 s more are silence.
  const FRESH_S = 7;
  const put = (name, words) => {
    const element = page.querySelector(`[data-live="${name}"]`);
    if (element && element.textContent !== words) element.textContent = words;
    return element;
  };
  const number = (value, decimals = 0) => value.toLocaleString("en", { maximumFractionDigits: decimals });
  const short = (value) => (value >= 100 ? number(value) : value.toLocaleString("en", { maximumSignificantDigits: 3 }));

  function span(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const two = (part) => String(part).padStart(2, "0");
    if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} m`;
    return whole >= 60 ? `${Math.floor(whole / 60)} m ${two(whole % 60)} s` : `${whole} s`;
  }

  function size(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    const power = bytes > 0 ? Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10)) : 0;
    return `${short(bytes / 1024 ** power)} ${units[power]}`;
  }

  // State: bounded by the server's own bounds.
  let state = null;
  let heard = performance.now();
  let lastId = "";

  function whole(message) {
    state = message;
    lastId = message.id || lastId;
    heard = performance.now();
    drawEvents(true);
    changed();
  }

  function take(message) {
    if (!state) return;
    heard = performance.now();
    state.now = message.now;
    if (message.run) return whole({ ...message, id: lastId });
    if (message.progress) state.progress = message.progress;
    if (message.ending) state.ending = message.ending;
    if (message.prospects) state.prospects = message.prospects;
    for (const [index, began, ended] of message.steps || []) Object.assign(state.run.steps[index], { began, ended });
    if (message.seconds) {
      state.recent.push(...message.seconds);
      state.recent.splice(0, Math.max(0, state.recent.length - RECENT));
    }
    if (message.history) state.history = message.history;
    for (const bucket of message.buckets || []) {
      const buckets = state.history.buckets;
      let place = buckets.length;
      while (place > 0 && buckets[place - 1][0] > bucket[0]) place -= 1;
      if (place > 0 && buckets[place - 1][0] === bucket[0]) buckets[place - 1] = bucket;
      else buckets.splice(place, 0, bucket);
    }
    if (message.heat !== undefined) state.heat = message.heat;
    if (message.health) state.health = message.health;
    if (message.warnings) state.warnings = message.warnings;
    if (message.guard) state.guard = message.guard;
    if (message.events) {
      state.log.push(...message.events);
      state.log.splice(0, Math.max(0, state.log.length - LOG_LINES));
      drawEvents(false, message.events);
    }
    if (message.end) {
      state.end = message.end;
      close();
    }
    changed();
  }

  // Drawing: once for all messages of a moment, and not at all while nobody looks.
  let due = false;
  function changed() {
    if (due || document.hidden) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      draw();
    });
  }
  const elapsed = () => state.now + (state.end ? 0 : (performance.now() - heard) / 1000);

  function draw() {
    drawHead();
    drawSteps();
    drawNow();
    const plotted = drawPlot();
    drawHeat();
    drawHealth();
    page.dataset.seconds = String(state.recent.length);
    const newest = state.recent.at(-1);
    plotted.then(() => {
      if (newest) page.dataset.newest = String(newest[0]);
    });
  }

  function drawHead() {
    const { progress, end } = state;
    put("state", end ? end.state : progress.state);
    put("step", end ? "" : progress.step);
    const percent = end && end.state === "done" ? 100 : progress.fraction * 100;
    put("percent", `${number(percent, 1)} %`);
    page.querySelector('[data-live="bar"]').value = percent;
    put("left", end || progress.seconds_left === null ? "–" : span(progress.seconds_left));
    put("ends", end || progress.seconds_left === null ? "–" : localTime(new Date(Date.now() + 1000 * progress.seconds_left)).slice(0, 16));
    put("case", progress.case > 0 ? `${progress.case} of ${progress.cases}` : `0 of ${progress.cases}`);
    const fill = page.querySelector('[data-live="fill-fact"]');
    fill.hidden = !progress.fill || Boolean(end);
    if (progress.fill) {
      const rate = progress.fill_bytes_per_s === null ? "" : ` at ${short(progress.fill_bytes_per_s / 1e9)} GB/s`;
      put("fill", `${size(progress.fill[0])} of ${size(progress.fill[1])}${rate}`);
    }
    put("ending", state.ending && !end ? state.ending.words : "");
    for (const how of ["stop", "cancel"]) {
      const box = page.querySelector(`[data-end="${how}"]`);
      if (box) box.hidden = Boolean(end) || Boolean(state.ending && (how === "stop" || state.ending.how === "cancel"));
      put(`${how}-words`, state.prospects[how]);
    }
    if (end) {
      page.querySelector('[data-live="end"]').hidden = false;
      page.querySelector('[data-live="end"]').className = `banner ${end.state === "done" ? "good" : "bad"}`;
      page.querySelector('[data-live="state"]').className = `pill ${end.state === "done" ? "good" : "bad"}`;
      put("end-state", end.state);
      put("end-reason", end.reason || "");
    }
  }

  const place = (step) => (step.began === null ? "ahead" : step.ended === null && !state.end ? "now" : "done");

  function drawSteps() {
    state.run.steps.forEach((step, index) => {
      const bar = page.querySelector(`[data-step="${index}"]`);
      const row = page.querySelector(`[data-row="${index}"]`);
      if (!bar || !row) return;
      const where = place(step);
      if (!bar.classList.contains(where)) {
        bar.classList.remove("ahead", "now", "done");
        bar.classList.add(where);
        row.className = where;
        row.querySelector('[data-cell="place"]').textContent = where;
      }
      if (where === "now") bar.style.setProperty("--share", `${100 * state.progress.step_fraction}%`);
      if (step.began !== null) row.querySelector('[data-cell="began"]').textContent = span(step.began);
      if (step.began !== null && step.ended !== null) row.querySelector('[data-cell="took"]').textContent = span(step.ended - step.began);
    });
  }

  function drawNow() {
    const last = state.recent[state.recent.length - 1];
    const fresh = last && elapsed() - last[0] <= FRESH_S && !state.end;
    for (const row of page.querySelectorAll("[data-op]")) {
      for (const cell of row.querySelectorAll("[data-figure]")) {
        const figure = cell.dataset.figure;
        const value = fresh ? last[1 + state.names.indexOf(`${row.dataset.op}_${figure}`)] : null;
        const words = value === null ? "–" : figure.endsWith("_us") ? short(value / 1000) : short(value);
        if (cell.textContent !== words) cell.textContent = words;
      }
    }
  }

  // Series: seconds one by one, or buckets with their lowest and highest second.
  function recentSeries(name) {
    const column = 1 + state.names.indexOf(name);
    const [x, y] = [[], []];
    let before = null;
    for (const second of state.recent) {
      if (before !== null && second[0] > before + 1) {
        x.push(second[0]);
        y.push(null);
      }
      x.push(second[0] + 0.5);
      y.push(second[column]);
      before = second[0];
    }
    return { x, y };
  }

  function wholeSeries(name) {
    const column = 1 + 2 * state.names.indexOf(name);
    const { step, buckets } = state.history;
    const [x, y] = [[], []];
    let before = null;
    for (const bucket of buckets) {
      if (before !== null && bucket[0] > before + 1) {
        x.push(bucket[0] * step);
        y.push(null);
      }
      const [low, high] = [bucket[column], bucket[column + 1]];
      x.push((bucket[0] + 0.5) * step);
      y.push(low);
      if (high !== low) {
        x.push((bucket[0] + 0.5) * step);
        y.push(high);
      }
      // A gap within the step breaks the line after it.
      if (bucket.at(-1) > 0) {
        x.push((bucket[0] + 0.5) * step);
        y.push(null);
      }
      before = bucket[0];
    }
    return { x, y };
  }

  // Steps in which seconds are missing, and how many: a break of one step may be narrower than a pixel.
  function gaps(from) {
    const { step, buckets } = state.history;
    return buckets.filter((bucket) => bucket.at(-1) > 0 && (bucket[0] + 1) * step > from).map((bucket) => [(bucket[0] + 0.5) * step, bucket.at(-1)]);
  }

  const plot = page.querySelector("[data-plot]");
  const chosen = (name) => page.querySelector(`input[name="${name}"]:checked`).value;

  function drawPlot() {
    const recent = chosen("span") === "recent";
    const series = recent ? recentSeries : wholeSeries;
    const look = theme();
    const to = Math.max(elapsed(), 10);
    const from = recent ? Math.max(0, to - RECENT) : 0;
    const width = Math.floor(plot.clientWidth);
    const traces = [];
    const add = (name, label, colour, yaxis, more = {}) => {
      const { x, y } = series(name);
      const values = more.scale ? y.map((value) => (value === null ? null : value * more.scale)) : y;
      if (!values.some((value) => value !== null)) return;
      traces.push({
        type: "scatter", mode: "lines", x, y: values, name: label, xaxis: "x", yaxis, connectgaps: false, opacity: more.opacity || 1,
        line: { color: colour, width: more.width || 1.6 }, legendgroup: label, showlegend: Boolean(more.legend), text: x.map((second) => clock(Math.floor(second), to)),
        hovertemplate: `%{text}: %{y:,.4~r} ${more.unit}<extra>${label}</extra>`,
      });
    };
    for (const op of ["read", "write"]) {
      const words = op === "read" ? "reads" : "writes";
      add(`${op}_iops`, words, look.op[op], "y", { unit: "IOPS", legend: true });
      add(`${op}_mib_per_s`, words, look.op[op], "y2", { unit: "MiB/s" });
      add(`${op}_max_us`, `${words}, max`, look.op[op], "y3", { unit: "ms", scale: 0.001, opacity: 0.35, width: 1 });
      add(`${op}_p99_us`, `${words}, p99`, look.op[op], "y3", { unit: "ms", scale: 0.001, opacity: 0.62, width: 1.3 });
      add(`${op}_p50_us`, `${words}, p50`, look.op[op], "y3", { unit: "ms", scale: 0.001 });
    }
    add("fill_mib_per_s", "fill", look.soft, "y2", { unit: "MiB/s", legend: true });
    const missing = gaps(from);
    if (missing.length) {
      traces.push({
        type: "scatter", mode: "markers", x: missing.map((gap) => gap[0]), y: missing.map(() => 0), name: "gap", xaxis: "x", yaxis: "y", cliponaxis: false, showlegend: true,
        marker: { symbol: "x-thin", size: 8, line: { width: 2, color: look.ink } }, text: missing.map((gap) => `${clock(Math.floor(gap[0]), to)}: ${number(gap[1])} s without all workers`), hovertemplate: "%{text}<extra>gap</extra>",
      });
    }
    const latencies = traces.filter((trace) => trace.yaxis === "y3").flatMap((trace) => trace.y);
    const top = (yaxis) => [0, 1.12 * Math.max(1, ...traces.filter((trace) => trace.yaxis === yaxis).flatMap((trace) => trace.y.filter((value) => value !== null)))];
    const look2 = layout(look, 520, {
      width, hovermode: "closest", margin: { l: 56, r: 10, t: 34, b: 36 }, shapes: phases(look, from, to),
      xaxis: axis(look, { range: [from, to], ...timeTicks(from, to, width), showgrid: false, zeroline: false, anchor: "y3", domain: [0, 1] }),
      yaxis: axis(look, { domain: [0.72, 1], range: top("y"), tickformat: "~s", nticks: 4, anchor: "x" }),
      yaxis2: axis(look, { domain: [0.41, 0.63], range: top("y2"), tickformat: "~s", nticks: 4, anchor: "x" }),
      yaxis3: latencies.some((value) => value > 0) ? logarithmic(look, latencies, { domain: [0, 0.32], anchor: "x" }) : axis(look, { domain: [0, 0.32], range: [0, 1], anchor: "x", showticklabels: false }),
      annotations: [heading(look, "IOPS", 0, 1.005), heading(look, "MiB/s", 0, 0.635), heading(look, "latency, ms: p50, p99 and max, each lighter", 0, 0.325)],
      legend: { orientation: "h", x: 1, xanchor: "right", y: 1.01, yanchor: "bottom", font: { size: 11, color: look.soft } },
    });
    const drawn = Plotly.react(plot, traces, look2, { displaylogo: false, responsive: false, displayModeBar: false, doubleClick: "reset" });
    const step = state.history.step;
    put("caption", `Time since the run began. Preconditioning and fills are shaded.${recent || step === 1 ? "" : ` A step is ${step} seconds, drawn with its lowest and its highest second.`}${missing.length ? " A × marks where seconds are missing: a worker's part did not come." : ""}`);
    page.dataset.gaps = String(missing.length);
    return drawn;
  }

  function phases(look, from, to) {
    const band = (x0, x1, fillcolor) => ({ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, fillcolor, line: { width: 0 }, layer: "below" });
    const shapes = [];
    for (const step of state.run.steps) {
      if (step.began === null) continue;
      const ended = step.ended === null ? to : step.ended;
      const shaded = step.kind === "case" ? Math.min(ended, step.began + step.precondition) : step.kind === "fill" ? ended : step.began;
      if (ended < from) continue;
      if (shaded > step.began) shapes.push(band(step.began, shaded, look.shade));
      if (step.kind === "case" || step.kind === "fill") shapes.push({ type: "line", xref: "x", yref: "paper", x0: step.began, x1: step.began, y0: 0, y1: 1, line: { color: look.line, width: 1, dash: "dot" }, layer: "below" });
    }
    return shapes.slice(-SHAPES);
  }

  // The map is built once for a case's workers and filled each second.
  const map = page.querySelector("[data-heat]");
  let built = "";

  function build(heat) {
    const shape = JSON.stringify([heat.by_worker, heat.rows.map((row) => [row.worker, row.cells.map((cell) => cell[0])])]);
    if (shape === built) return;
    built = shape;
    map.replaceChildren();
    const columns = Math.max(0, ...heat.rows.map((row) => row.cells.length));
    const head = map.createTHead().insertRow();
    head.append(document.createElement("td"));
    head.firstChild.className = "skip";
    for (let column = 0; column < columns; column += 1) {
      const name = document.createElement("th");
      name.scope = "col";
      name.textContent = heat.by_worker ? "all disks" : `disk ${column + 1}`;
      head.append(name);
    }
    const body = map.createTBody();
    for (const row of heat.rows) {
      const line = body.insertRow();
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = row.worker;
      line.append(name);
      for (let column = 0; column < row.cells.length; column += 1) line.insertCell();
    }
    head.firstChild.replaceWith(Object.assign(document.createElement("th"), { textContent: "" }));
  }

  function drawHeat() {
    const { heat } = state;
    if (!heat) return;
    build(heat);
    const latency = chosen("figure") === "latency";
    const value = (cell) => (latency ? cell[2] : cell[1]);
    const all = heat.rows.flatMap((row) => row.cells.map(value)).filter((one) => one !== null && one > 0).sort((a, b) => a - b);
    const median = all.length ? all[Math.floor((all.length - 1) / 2)] : 0;
    const worse = (one) => (median > 0 && one > 0 ? (latency ? one / median : median / one) : 1);
    const slow = [];
    // One number of decimals for all cells, so that they line up.
    const shownMedian = latency ? median / 1000 : median;
    const decimals = shownMedian >= 100 ? 0 : shownMedian >= 10 ? 1 : 2;
    const fixed = (shown) => shown.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    heat.rows.forEach((row, index) => {
      const cells = map.tBodies[0].rows[index].cells;
      row.cells.forEach((cell, column) => {
        const box = cells[column + 1];
        const one = value(cell);
        const silent = cell[1] === 0;
        const ratio = silent ? 1 : worse(one);
        if (!silent && ratio >= 1.5) slow.push([ratio, `${row.worker}, ${heat.by_worker ? "all disks" : `disk ${column + 1}`}`, one]);
        if (silent) slow.push([Infinity, `${row.worker}, ${heat.by_worker ? "all disks" : `disk ${column + 1}`}`, 0]);
        const words = silent ? "none" : fixed(latency ? one / 1000 : one);
        if (box.textContent !== words) box.textContent = words;
        box.classList.toggle("silent", silent);
        box.classList.toggle("errors", cell[4] > 0);
        box.style.setProperty("--heat", `${Math.round(50 * Math.min(2, Math.max(0, Math.log2(ratio))))}%`);
        box.title = `${row.worker}, ${cell[0]}: ${short(cell[1])} IOPS, mean ${cell[2] === null ? "–" : short(cell[2] / 1000)} ms, max ${short(cell[3] / 1000)} ms, ${number(cell[4])} errors`;
      });
    });
    slow.sort((a, b) => b[0] - a[0]);
    const named = slow.slice(0, 3).map(([ratio, name, one]) => (ratio === Infinity ? `${name} (no I/O)` : `${name} (${latency ? `${short(one / 1000)} ms` : `${short(one)} IOPS`}, ${short(ratio)} × worse)`));
    const unit = latency ? `${short(median / 1000)} ms` : `${short(median)} IOPS`;
    const verdict = slow.length === 0 ? "No disk is more than 1.5 × worse than it." : `${number(slow.length)} beyond 1.5 ×: ${named.join("; ")}${slow.length > 3 ? "; …" : "."}`;
    const age = Math.floor(elapsed() - heat.newest);
    const old = age > 2 * FRESH_S && !state.end ? `, as they were ${span(age)} ago: nothing newer has come` : "";
    put("heat-note", all.length ? `The last ${heat.seconds} s of the case${old}. Median ${unit}. ${verdict}` : `No I/O in the last ${heat.seconds} s.`);
  }

  // Hosts and storage: rows are built anew, a few every ten seconds.
  let healthShown = "";

  function drawHealth() {
    const { health, warnings, guard } = state;
    const shape = JSON.stringify([health, warnings, guard]);
    if (shape === healthShown) return;
    healthShown = shape;
    page.querySelector('[data-live="warnings"]').hidden = warnings.length === 0;
    page.querySelector("[data-warnings]").replaceChildren(...warnings.map((words) => Object.assign(document.createElement("li"), { textContent: words })));
    const said = page.querySelector("[data-guard]");
    said.hidden = guard.length === 0;
    said.replaceChildren(...guard.map(line));
    const tables = page.querySelector('[data-live="health-tables"]');
    if (!health || !tables) return;
    tables.hidden = false;
    put("health-note", `As of ${localTime(new Date(health.at))}.`);
    const percent = (value) => (value === null ? "–" : value.toFixed(1));
    const rows = health.hosts.map((load) => {
      const row = document.createElement("tr");
      const name = Object.assign(document.createElement("th"), { scope: "row", textContent: load.host });
      const used = load.memory_used_bytes === null ? "–" : load.memory_bytes === null ? size(load.memory_used_bytes) : `${size(load.memory_used_bytes)} of ${size(load.memory_bytes)}`;
      const cells = [percent(load.cpu_percent), used, percent(load.io_pressure_percent), percent(load.io_wait_percent)];
      row.append(name, ...cells.map((words) => Object.assign(document.createElement("td"), { className: "num", textContent: words })));
      return row;
    });
    page.querySelector("[data-hosts]").replaceChildren(...rows);
    const { storage } = health;
    const told = page.querySelector("[data-storage]");
    if (!storage) {
      told.textContent = "No storage cluster tells its health.";
      return;
    }
    const rest = storage.status === "HEALTH_OK" && storage.recovery_bytes_per_second === 0 && storage.displaced_percent === 0 && storage.scrubbing === 0;
    const pill = Object.assign(document.createElement("span"), { className: `pill ${rest ? "good" : "warn"}`, textContent: storage.status });
    const checks = storage.checks.length ? `${storage.checks.join(", ")}; ` : "";
    told.replaceChildren(pill, ` ${checks}recovery ${size(storage.recovery_bytes_per_second)} a second, ${storage.displaced_percent.toFixed(2)} % displaced, ${number(storage.scrubbing)} placement groups scrubbing`);
  }

  const log = page.querySelector("[data-log]");

  function line(event) {
    const item = document.createElement("li");
    const [when, level, words] = [document.createElement("span"), document.createElement("span"), document.createElement("span")];
    when.className = "nowrap soft";
    when.textContent = localTime(new Date(event.at));
    level.className = `level ${event.level}`;
    level.textContent = event.level;
    words.textContent = event.message;
    item.append(when, level, words);
    return item;
  }

  function drawEvents(all, fresh = []) {
    if (all) log.replaceChildren(...[...state.log].reverse().map(line));
    else for (const event of fresh) log.prepend(line(event));
    while (log.children.length > LOG_LINES) log.lastChild.remove();
    page.querySelector('[data-live="no-events"]').hidden = log.children.length > 0;
  }

  // The feed. A browser reconnects by itself after a broken connection, but not after an answer that is none. It keeps six connections
  // to a server at most, whatever the tabs: one that nobody looks at gives its own back and takes up the feed where it left it.
  let source = null;
  let wait = 1000;
  let retry = 0;
  const note = (words, bad) => put("note", words).classList.toggle("bad", Boolean(bad));

  function disconnect() {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
  }

  function close() {
    disconnect();
    note("The run has ended; this page shows its last state.");
  }

  function open() {
    disconnect();
    if (document.hidden || state.end) return;
    source = new EventSource(`${page.dataset.watch}?after=${encodeURIComponent(lastId)}`);
    page.dataset.feed = "open";
    source.addEventListener("open", () => {
      wait = 1000;
      note("Live: a new second about every second.");
    });
    const remember = (event) => {
      if (event.lastEventId) lastId = event.lastEventId;
    };
    source.addEventListener("message", (event) => {
      remember(event);
      take(JSON.parse(event.data));
    });
    source.addEventListener("whole", (event) => {
      remember(event);
      whole(JSON.parse(event.data));
      if (state.end) close();
    });
    source.addEventListener("gone", () => {
      location.assign(page.dataset.report);
    });
    source.addEventListener("error", () => {
      note("The connection is lost; the run goes on. Trying again…", true);
      if (!source || source.readyState !== EventSource.CLOSED) return;
      retry = setTimeout(open, wait);
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    });
  }

  function looked() {
    if (state.end) return changed();
    if (document.hidden) {
      disconnect();
      page.dataset.feed = "paused";
      return undefined;
    }
    if (!source) open();
    return changed();
  }

  whole(JSON.parse(document.getElementById("watch-state").textContent));
  if (state.end) close();
  else open();
  for (const input of page.querySelectorAll('input[type="radio"]')) input.addEventListener("change", changed);
  document.addEventListener("visibilitychange", looked);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  addEventListener("resize", changed);
  addEventListener("pagehide", () => source && source.close());
  addEventListener("pageshow", (event) => event.persisted && location.reload());
})();
