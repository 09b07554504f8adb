"use strict";
// What every page has: times in the reader's zone, and buttons that copy. Without it, the pages work as they are.
(() => {
  const pad = (number) => String(number).padStart(2, "0");

  // A time that has a title was shown by the report's script.
  for (const element of document.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(at).find((part) => part.type === "timeZoneName");
    element.title = element.textContent;
    element.textContent = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())} ${zone ? zone.value : ""}`.trim();
  }

  // The clipboard is there over TLS and on loopback only; elsewhere the text is selected, to be copied by hand.
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const source = document.getElementById(button.dataset.copy);
    button.hidden = false;
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(source);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected: copy it now";
      }
    });
  }
})();
