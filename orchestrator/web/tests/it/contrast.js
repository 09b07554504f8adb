// Texts whose contrast with what is behind them is below WCAG 2.2's AA (1.4.3), with the ratio. The charts draw their own.
const parts = (colour) => {
  const numbers = colour.match(/[\d.]+/g).map(Number);
  return numbers.length < 4 ? [...numbers, 1] : numbers;
};
const over = (top, below) => below.map((value, index) => top[index] * top[3] + value * (1 - top[3]));
const luminance = (colour) => {
  const [red, green, blue] = colour.map((value) => (value <= 10.31 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(getComputedStyle(at).backgroundColor);
  // A colour that is mixed has another notation: the elements with one are figures' marks, of the report.
  if (layers.some((colour) => !colour.startsWith("rgb"))) return null;
  return layers.reverse().map(parts).reduce((below, top) => over(top, below), [255, 255, 255]);
};
const says = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim() !== "");
const seen = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".plot, .skip, head, script, style");
const bad = [];
for (const element of document.querySelectorAll("body *")) {
  if (!(element instanceof HTMLElement) || !says(element) || !seen(element)) continue;
  const style = getComputedStyle(element);
  const ground = behind(element);
  if (!ground) continue;
  const [a, b] = [luminance(over(parts(style.color), ground)), luminance(ground)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)}: ${element.textContent.trim().slice(0, 60)}`);
}
return bad;
