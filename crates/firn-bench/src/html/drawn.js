// Counts the figures in which every series can be seen, or that say that there is nothing to see, for tests that open the page in a browser.
addEventListener("load", () => {
  const isSeen = (element) => {
    const box = element.getBBox();
    return box.width + box.height > 0;
  };
  const isDrawn = (figure) => {
    if (figure.dataset.series === "0") return figure.querySelector(".nothing") !== null;
    const plot = figure.querySelector("svg.plot");
    const frame = plot ? plot.getBoundingClientRect() : { width: 0, height: 0 };
    const keys = (figure.dataset.keys || "").split(" ").filter((key) => key);
    if (frame.width === 0 || frame.height === 0 || keys.length !== Number(figure.dataset.series)) return false;
    return keys.length > 0 && keys.every((key) => [...plot.querySelectorAll("." + key)].some(isSeen));
  };
  const figures = [...document.querySelectorAll("figure")];
  document.body.dataset.drawn = String(figures.filter(isDrawn).length);
});
