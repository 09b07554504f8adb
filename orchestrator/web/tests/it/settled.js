// Answers when the page is drawn for its present width and colours: charts follow a change of width after a moment.
const done = arguments[arguments.length - 1];
const fits = (figure) => Number(figure.dataset.width) === figure.querySelector(".plot").clientWidth;
const settled = () => [...document.querySelectorAll("figure[data-drawn]")].every(fits);
const look = (frames) =>
  requestAnimationFrame(() => (frames === 0 && settled() ? done(true) : look(Math.max(0, frames - 1))));
look(3);
