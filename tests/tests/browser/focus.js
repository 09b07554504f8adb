// Where the focus is: whether that is the element of a selector, and whether a person sees it.
const at = document.activeElement;
if (!at || at === document.body || at === document.documentElement) return null;
const box = at.getBoundingClientRect();
const inWindow = box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
const outlined = (element) => {
  const style = getComputedStyle(element);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && !/^rgba\(.*, 0\)$/.test(style.outlineColor);
};
// What surrounds a field may show it for the field.
let ringed = false;
for (let element = at, depth = 0; element && depth < 3; element = element.parentElement, depth += 1) ringed ||= outlined(element);
return { there: at.matches(arguments[0]), seen: inWindow && ringed, what: `${at.outerHTML.slice(0, 160)} at ${Math.round(box.left)}, ${Math.round(box.top)}` };
