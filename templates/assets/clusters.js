"use strict";
// A certificate from a file into the field for its text: what is sent is the text, so that it can be seen.
(() => {
  document.documentElement.classList.add("js");
  const MAX_FILE_BYTES = 64 << 10;
  for (const input of document.querySelectorAll("input[type=file][data-into]")) {
    input.addEventListener("change", async () => {
      const [file] = input.files;
      if (!file) return;
      const field = input.form.elements[input.dataset.into];
      const small = file.size <= MAX_FILE_BYTES;
      field.setCustomValidity(small ? "" : `${file.name} has ${file.size} bytes; certificates have ${MAX_FILE_BYTES} at most.`);
      if (small) field.value = await file.text();
      field.reportValidity();
      input.value = "";
    });
    input.form.elements[input.dataset.into].addEventListener("input", (event) => event.target.setCustomValidity(""));
  }
})();
