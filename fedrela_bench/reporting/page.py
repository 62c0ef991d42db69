"""Style and behaviour of the HTML report: no font, script or picture comes from elsewhere."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b;
  background: #fff; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
.scroll:focus-visible, button:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px; }
table { border-collapse: collapse; border-top: 2px solid #1b1b1b; border-bottom: 2px solid #1b1b1b;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; color: #444; max-width: min(70rem, calc(100vw - 2rem)); }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; vertical-align: top; }
th { font-weight: 600; }
thead th { white-space: normal; vertical-align: bottom; }
th.text, td.text { text-align: left; }
th[scope=colgroup] { text-align: center; border-bottom: 1px solid #1b1b1b; }
thead tr:last-child th { border-bottom: 1px solid #1b1b1b; }
tbody tr:nth-child(even) > * { background: #f4f6f8; }
th[scope=row] { position: sticky; left: 0; background: #fff; font-weight: 400; white-space: normal;
  min-width: 9rem; max-width: 24rem; }
th button { all: unset; cursor: pointer; } th button::after { content: "\\a0\\2195"; color: #767676; }
th[aria-sort=ascending] button::after { content: "\\a0\\2191"; }
th[aria-sort=descending] button::after { content: "\\a0\\2193"; }
.second { text-decoration: underline; }
.interval { display: block; font-size: .85em; color: #444; }
ul.notes { padding-left: 1.1rem; } dt { font-weight: 600; } dd { margin: 0 0 .4rem; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } figcaption { color: #444; } img { max-width: 100%; height: auto; }
@media (max-width: 40rem) { body { padding: .6rem; font-size: 15px; } th, td { padding: .25rem .4rem; }
  th[scope=row] { min-width: 7rem; max-width: 9rem; }
  figure { overflow-x: auto; } figure img { max-width: none; width: 46rem; } }
@media print { @page { size: A4 landscape; margin: 12mm; } body { max-width: none; padding: 0; font-size: 9pt; }
  .scroll { overflow: visible; } th, td { padding: .1rem .3rem; } th[scope=row] { position: static; }
  img { max-height: 165mm; } h2 { break-after: avoid; } tr, figure { break-inside: avoid; }
  thead { display: table-header-group; } th button::after { content: ""; } }
"""
SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = table.querySelectorAll("thead th[scope=col]");
  const value = (row, at) => row.cells[at].dataset.value ?? row.cells[at].textContent;
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending", sign = down ? -1 : 1;
      const order = (a, b) => {
        const [x, y] = [value(a, at), value(b, at)];
        if (x === "" || y === "") return (x === "") - (y === "");
        return sign * (Number.isNaN(x - y) ? x.localeCompare(y) : x - y);
      };
      body.append(...[...body.rows].sort(order));
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
}
"""
"""Sorts a table by the column whose heading is pressed, what is missing last; without scripts the order stays."""
