"use strict";
// Draws the report's charts from their data, in the reader's colours and width, and shows times in the reader's zone.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const dark = matchMedia("screen and (prefers-color-scheme: dark)");
  const PRINT_WIDTH = 690;
  const NARROW = 520;
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];

  // Names may hold anything: the chart library reads a few tags in its texts.
  const text = (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function localTime(at) {
    const pad = (number) => String(number).padStart(2, "0");
    const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(at).find((part) => part.type === "timeZoneName");
    return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())} ${zone ? zone.value : ""}`.trim();
  }

  function localTimes() {
    for (const element of document.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      element.title = element.textContent;
      element.textContent = localTime(at);
    }
  }

  function theme() {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      ink: colour("ink"), soft: colour("soft"), line: colour("line"), bg: colour("bg"), panel: colour("panel"), shade: colour("shade"), gap: colour("gap"),
      op: { read: colour("read"), write: colour("write") },
      footprint: ["f1", "f2", "f3", "f4", "f5", "f6"].map(colour),
      font: style.getPropertyValue("--font").trim(),
    };
  }

  const axis = (look, more) => ({
    gridcolor: look.line, linecolor: look.line, zerolinecolor: look.line, tickfont: { color: look.soft, size: 11 }, fixedrange: false, automargin: true, ...more,
  });

  const layout = (look, height, more) => ({
    height, autosize: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: look.font, size: 12, color: look.ink }, margin: { l: 52, r: 10, t: 34, b: 40 },
    hoverlabel: { bgcolor: look.panel, bordercolor: look.line, font: { color: look.ink, family: look.font } },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", xanchor: "left", font: { size: 11, color: look.soft } },
    ...more,
  });

  const heading = (look, words, x, y) => ({
    text: words, x, y, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12, color: look.soft },
  });

  const grouped = (value, figures) => value.toLocaleString("en", figures ? { maximumSignificantDigits: figures } : { maximumFractionDigits: 0 });

  function footprints(data, look, width, paper) {
    const narrow = width < Math.max(330, 170 * data.footprints.length);
    const places = data.footprints.map((_, index) => index);
    const ticks = data.footprints.map((footprint) => text(footprint.label) + (footprint.mark ? `<br>⚠ ${text(footprint.mark)}` : ""));
    const pattern = data.footprints.map((footprint) => (footprint.mark ? "/" : ""));
    const traces = [];
    const mixed = data.ops.length > 1;
    for (const part of data.ops) {
      const words = part.op === "read" ? "reads" : "writes";
      const paint = { color: look.op[part.op], pattern: { shape: pattern, bgcolor: look.op[part.op], fgcolor: look.bg, fgopacity: 0.5, size: 7, solidity: 0.25 } };
      const stacked = mixed && part === data.ops[1];
      traces.push({
        type: "bar", x: places, y: part.iops, name: words, legendgroup: part.op, marker: paint, xaxis: "x", yaxis: "y",
        width: 0.5, offset: -0.25, base: stacked ? data.ops[0].iops.map((value) => value || 0) : undefined, constraintext: "none",
        text: part.iops.map((value) => (value === null ? "" : grouped(value))), textposition: mixed ? "inside" : "outside", insidetextanchor: "middle", textangle: 0, cliponaxis: false,
        insidetextfont: { color: look.bg }, outsidetextfont: { color: look.ink },
        customdata: part.iops, hovertemplate: `%{customdata:,.0f} IOPS<extra>${words}</extra>`, showlegend: mixed,
      });
      const p99 = part.p99_us.map((value) => (value === null ? null : value / data.unit_us));
      traces.push({
        type: "bar", x: places, y: p99, name: words, legendgroup: part.op, marker: paint, xaxis: "x2", yaxis: "y2", width: mixed ? 0.36 : 0.5, offset: mixed ? (stacked ? 0.02 : -0.38) : -0.25, constraintext: "none",
        text: p99.map((value) => (value === null ? "" : grouped(value, 3))), textposition: "outside", textangle: 0, cliponaxis: false, outsidetextfont: { color: look.ink },
        hovertemplate: `p99 %{y:,.4~r} ${data.unit}<extra>${words}</extra>`, showlegend: false,
      });
    }
    const span = { range: [-0.6, places.length - 0.4], tickvals: places, ticktext: ticks, showgrid: false, zeroline: false };
    const first = narrow ? [0.6, 1] : [0, 1];
    const second = narrow ? [0, 0.38] : [0, 1];
    const top = (values) => [0, 1.16 * Math.max(0, ...values.filter((value) => value !== null)) || 1];
    const sums = places.map((place) => data.ops.reduce((sum, part) => sum + (part.iops[place] || 0), 0));
    const peaks = data.ops.flatMap((part) => part.p99_us.map((value) => (value === null ? null : value / data.unit_us)));
    return [traces, layout(look, narrow ? 440 : paper ? 250 : 300, {
      barmode: "group", bargap: 0.4, hovermode: "closest", margin: { l: 52, r: 10, t: mixed ? 62 : 40, b: data.footprints.some((footprint) => footprint.mark) ? 40 : 26 },
      xaxis: axis(look, { ...span, domain: narrow ? [0, 1] : [0, 0.44], anchor: "y" }),
      xaxis2: axis(look, { ...span, domain: narrow ? [0, 1] : [0.56, 1], anchor: "y2" }),
      yaxis: axis(look, { domain: first, anchor: "x", range: top(sums), tickformat: "~s", nticks: 5 }),
      yaxis2: axis(look, { domain: second, anchor: "x2", range: top(peaks), tickformat: "~r", nticks: 5 }),
      annotations: [heading(look, "IOPS", 0, first[1] + 0.01), heading(look, `p99 latency, ${data.unit}`, narrow ? 0 : 0.56, second[1] + 0.01)],
      legend: { orientation: "h", x: 0, y: narrow ? 1.08 : 1.1, yanchor: "bottom", font: { size: 11, color: look.soft } },
    })];
  }

  function percentiles(data, look, width, paper) {
    const nines = [Math.log10(2), 1, -Math.log10(0.05), 2, 3, 4, 4.7];
    const labels = ["p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"];
    const operations = new Set(data.curves.map((curve) => curve.op));
    const traces = data.curves.map((curve) => {
      const colour = look.footprint[curve.order % look.footprint.length];
      const us = curve.us.map((value) => value / data.unit_us);
      const name = text(curve.footprint) + (operations.size > 1 ? (curve.op === "read" ? " reads" : " writes") : "");
      return {
        type: "scatter", mode: "lines+markers", name,
        x: [...nines.slice(0, 6), null, nines[6]], y: [...us.slice(0, 6), null, us[6]], text: [...labels.slice(0, 6), "", labels[6]],
        line: { color: colour, width: 2, dash: curve.op === "write" && operations.size > 1 ? "dash" : "solid" },
        marker: { color: colour, size: 7, symbol: SYMBOLS[curve.order % SYMBOLS.length] },
        hovertemplate: `%{text} %{y:,.4~r} ${data.unit}<extra>${name}</extra>`,
      };
    });
    const narrow = width < NARROW;
    // The legend takes its lines from the top: more curves need a higher chart, or it would lie on them.
    const longest = Math.max(...traces.map((trace) => trace.name.length));
    const lines = Math.ceil(traces.length / Math.max(1, Math.floor((width - 60) / (6.2 * longest + 50))));
    const more = 19 * Math.max(0, lines - 2);
    return [traces, layout(look, (paper ? 250 : 300) + more, {
      hovermode: "closest", margin: { l: 52, r: 10, t: 62 + more, b: 26 },
      xaxis: axis(look, { tickvals: nines, ticktext: narrow ? ["p50", "p90", "", "p99", "p99.9", "p99.99", "max"] : labels, range: [0.1, 4.9], zeroline: false, tickangle: 0 }),
      yaxis: logarithmic(look, traces.flatMap((trace) => trace.y)),
      annotations: [heading(look, `latency, ${data.unit}`, 0, 1.01)],
      legend: { orientation: "h", x: 0, y: 1.1, yanchor: "bottom", maxheight: 1000, font: { size: 11, color: look.soft } },
    })];
  }

  // Ticks at 1, 2 and 5 of each decade where there are few decades: the library's own say "2" and "5" without their decade.
  function logarithmic(look, values, more) {
    const real = values.filter((value) => value !== null && value > 0);
    if (real.length === 0) return axis(look, more);
    const low = Math.log10(Math.min(...real));
    const high = Math.log10(Math.max(...real));
    const margin = Math.max(0.08, 0.06 * (high - low));
    const steps = high - low > 2.5 ? [1] : [1, 2, 5];
    const ticks = [];
    for (let decade = Math.floor(low - margin); decade <= Math.ceil(high + margin); decade += 1) {
      for (const step of steps) ticks.push(step * 10 ** decade);
    }
    return axis(look, {
      type: "log", range: [low - margin, high + margin], tickvals: ticks,
      ticktext: ticks.map((tick) => tick.toLocaleString("en", { maximumSignificantDigits: 3 })), zeroline: false, ...more,
    });
  }

  function timeTicks(from, to, width) {
    const wanted = (to - from) / Math.max(3, Math.floor(width / 90));
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200];
    const step = steps.find((candidate) => candidate >= wanted) || 86400;
    const values = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) values.push(at);
    return { tickvals: values, ticktext: values.map((at) => clock(at, Math.max(-from, to))) };
  }

  function clock(seconds, longest) {
    const sign = seconds < 0 ? "−" : "";
    const whole = Math.abs(Math.round(seconds));
    const two = (number) => String(number).padStart(2, "0");
    if (longest < 120) return `${sign}${whole} s`;
    if (longest < 7200) return `${sign}${Math.floor(whole / 60)}:${two(whole % 60)}`;
    return `${sign}${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  }

  // A second between two gaps has no line to either side: it gets a dot.
  function dots(y) {
    const few = y.length <= 120;
    return y.map((value, index) => {
      const lonely = (y[index - 1] ?? null) === null && (y[index + 1] ?? null) === null;
      return value !== null && (few || lonely) ? 4 : 0;
    });
  }

  // Words in the shaded part, where they fit.
  function phaseNames(data, look, width) {
    const share = data.precondition / Math.max(data.precondition + data.sample, 1);
    if (share * width < 130) return [];
    return [{ text: "preconditioning", x: -data.precondition, y: 0.585, xref: "x", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 11, color: look.soft } }];
  }

  function timeline(data, look, width, paper) {
    const from = -data.precondition;
    const to = Math.max(data.sample, 0.001);
    const longest = Math.max(-from, to);
    const mixed = new Set(data.lines.map((line) => line.op)).size > 1;
    const styles = { iops: [1, 1.6], p50: [1, 1.8], p99: [0.62, 1.4], max: [0.36, 1.1] };
    const traces = data.lines.map((line) => {
      const rate = line.figure === "iops";
      const [opacity, thickness] = styles[line.figure];
      const y = rate ? line.y : line.y.map((value) => (value === null ? null : value / data.unit_us));
      const operation = line.op === "read" ? "reads" : "writes";
      const name = rate ? operation : line.figure;
      const full = rate || mixed ? `${rate ? "" : `${line.figure} `}${operation}` : line.figure;
      return {
        type: "scatter", mode: "lines+markers", x: line.x, y, name, xaxis: "x", yaxis: rate ? "y" : "y2", connectgaps: false,
        opacity, line: { color: look.op[line.op], width: thickness }, marker: { color: look.op[line.op], size: dots(y), line: { width: 0 } },
        legend: rate ? "legend" : "legend2", legendgroup: rate ? line.op : line.figure, showlegend: rate ? mixed : line.op === data.lines[0].op,
        text: line.x.map((x) => clock(Math.floor(x), longest)),
        hovertemplate: rate ? `%{text}: %{y:,.0f} IOPS<extra>${full}</extra>` : `%{text}: %{y:,.4~r} ${data.unit}<extra>${full}</extra>`,
      };
    });
    const band = (x0, x1, fillcolor) => ({ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, fillcolor, line: { width: 0 }, layer: "below" });
    const shapes = [];
    if (data.precondition > 0) shapes.push(band(from, 0, look.shade));
    for (const [start, end] of data.gaps) shapes.push(band(start, end, look.gap));
    const small = { orientation: "h", x: 1, xanchor: "right", yanchor: "bottom", font: { size: 11, color: look.soft }, bgcolor: "rgba(0,0,0,0)" };
    const latencies = traces.filter((trace) => trace.yaxis === "y2").flatMap((trace) => trace.y);
    const rates = traces.filter((trace) => trace.yaxis === "y").flatMap((trace) => trace.y.filter((value) => value !== null));
    return [traces, layout(look, paper ? 240 : 380, {
      hovermode: "closest", margin: { l: 52, r: 10, t: 30, b: 36 }, shapes,
      xaxis: axis(look, { range: [from, to], ...timeTicks(from, to, width), showgrid: false, zeroline: false, anchor: "y2", domain: [0, 1] }),
      yaxis: axis(look, { domain: [0.58, 1], range: [0, 1.1 * Math.max(1, ...rates)], tickformat: "~s", nticks: 5, anchor: "x" }),
      yaxis2: logarithmic(look, latencies, { domain: [0, 0.44], anchor: "x" }),
      annotations: [heading(look, "IOPS", 0, 1.01), heading(look, `latency, ${data.unit}`, 0, 0.45), ...phaseNames(data, look, width)],
      legend: { ...small, y: 1.01 }, legend2: { ...small, y: 0.45 },
    })];
  }

  // For the scripts of pages that draw charts of their own.
  globalThis.fourcornersCharts = { theme, axis, layout, heading, logarithmic, timeTicks, clock, text, at: localTime, symbols: SYMBOLS };

  const kinds = { footprints, percentiles, timeline };
  const config = { displaylogo: false, responsive: false, displayModeBar: false, doubleClick: "reset" };

  function draw(figure, fixedWidth) {
    const plot = figure.querySelector(".plot");
    try {
      const data = JSON.parse(figure.querySelector("script").textContent);
      const width = Math.floor(fixedWidth || plot.clientWidth);
      const [traces, look] = kinds[data.kind](data, theme(), width, Boolean(fixedWidth));
      look.width = width;
      Plotly.react(plot, traces, look, config);
      figure.dataset.width = String(width);
    } catch (error) {
      plot.textContent = `This chart could not be drawn: ${error.message}. The figures are in the tables.`;
      console.error(error);
    }
    figure.dataset.drawn = "yes";
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")];

  // One a turn, so that the page can be read and scrolled meanwhile.
  function drawAll() {
    let next = 0;
    const turn = () => {
      if (next < figures.length) {
        draw(figures[next]);
        next += 1;
        setTimeout(turn, 0);
      } else {
        root.dataset.charts = String(figures.length);
      }
    };
    turn();
  }

  function redraw() {
    for (const figure of figures) {
      if (figure.dataset.drawn) draw(figure);
    }
  }

  let pending = 0;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      for (const figure of figures) {
        if (figure.dataset.drawn && Number(figure.dataset.width) !== figure.querySelector(".plot").clientWidth) draw(figure);
      }
    }, 150);
  });
  let printing = false;
  addEventListener("beforeprint", () => {
    printing = true;
    // Paper is white, whatever the screen is: its colours are asked for while the screen's still hold.
    root.dataset.paper = "yes";
    for (const figure of figures) draw(figure, figure.closest(".pair") ? PRINT_WIDTH / 2 - 10 : PRINT_WIDTH);
  });
  addEventListener("afterprint", () => {
    printing = false;
    delete root.dataset.paper;
    redraw();
  });
  dark.addEventListener("change", () => {
    if (!printing) redraw();
  });

  localTimes();
  drawAll();
})();
