"use strict";
// Shows the progress of a run that goes on, and loads the page again when it has ended.
(() => {
  const panel = document.querySelector("[data-progress]");
  if (!panel) return;
  const PERIOD_MS = 2000;
  const LONGEST_PERIOD_MS = 30000;
  const ANSWER_MS = 10000;
  let period = PERIOD_MS;
  let seen = false;

  const put = (name, words) => {
    const element = panel.querySelector(`[data-live="${name}"]`);
    if (element.textContent !== words) element.textContent = words;
  };
  const figure = (value, decimals) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: decimals }));

  function left(seconds) {
    if (seconds === null || seconds === undefined) return "–";
    const whole = Math.max(0, Math.round(seconds));
    const two = (number) => String(number).padStart(2, "0");
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    if (hours > 0) return `${hours} h ${two(minutes)} m`;
    return minutes > 0 ? `${minutes} m ${two(whole % 60)} s` : `${whole} s`;
  }

  function show(progress) {
    panel.hidden = false;
    put("phase", progress.phase);
    put("case", progress.case || "");
    put("percent", `${figure(progress.percent, 1)} %`);
    put("iops", figure(progress.iops, 0));
    put("mib_per_s", figure(progress.mib_per_s, 1));
    put("seconds_left", left(progress.seconds_left));
    put("note", "");
    panel.querySelector("progress").value = progress.percent;
  }

  async function ask() {
    try {
      const answer = await fetch(panel.dataset.progress, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      if (!answer.ok) throw new Error(`the orchestrator answered ${answer.status}`);
      const { progress } = await answer.json();
      period = PERIOD_MS;
      if (progress) {
        seen = true;
        show(progress);
      } else if (seen) {
        location.reload();
        return;
      }
    } catch (error) {
      period = Math.min(2 * period, LONGEST_PERIOD_MS);
      panel.hidden = false;
      put("note", `No figures for now: ${error.message}. Asking again in ${period / 1000} s.`);
    }
    setTimeout(ask, period);
  }
  ask();
})();
