// How report.html looks: light and dark, from phones to wide screens.
#include "report/page.hpp"

namespace tulle::page {

const std::string_view kStyle = R"css(
:root {
  --paper: #f6f5f2; --card: #ffffff; --ink: #1c1d22; --soft: #6a6c76; --line: #e4e2dc;
  --attention: #4b4fc4; --select: #d98a1f; --communication: #16918a; --other: #a9abb6; --rest: #d9d8d3;
  --low: #eeedf6; --high: #34379b; --accent: #4b4fc4; --good: #16918a;
  --shadow: 0 1px 2px rgb(28 29 34 / .05), 0 6px 24px rgb(28 29 34 / .05);
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #131418; --card: #1b1d23; --ink: #eceae4; --soft: #9699a6; --line: #2b2e37;
    --attention: #8b8ff2; --select: #f0b04e; --communication: #45c9bf; --other: #5f6372; --rest: #383b46;
    --low: #23252f; --high: #a9acff; --accent: #a1a4f7; --good: #45c9bf; --shadow: none;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 64px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 16px; margin-bottom: 20px; }
.brand { display: inline-flex; align-items: center; gap: 10px; font-weight: 650; letter-spacing: -.01em; font-size: 18px; }
.brand i { display: grid; grid-template-columns: repeat(4, 5px); gap: 1.5px; }
.brand b { width: 5px; height: 5px; border-radius: 1.2px; background: var(--rest); }
.brand b.on { background: var(--accent); }
.where { color: var(--soft); margin-left: auto; }
h1 { flex-basis: 100%; margin: 14px 0 2px; font-size: clamp(20px, 2.6vw, 27px); line-height: 1.3; font-weight: 600;
  letter-spacing: -.018em; text-wrap: balance; }
h2 { font-size: 16px; margin: 0 0 4px; font-weight: 620; letter-spacing: -.005em; }
.hint { color: var(--soft); margin: 0 0 14px; font-size: 13.5px; max-width: 96ch;
  text-wrap: pretty; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 20px; margin-top: 16px;
  box-shadow: var(--shadow); min-width: 0; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
.pair > section { margin-top: 16px; }
[hidden] { display: none !important; }

.tiles { display: flex; flex-wrap: wrap; gap: 1px; padding: 0; overflow: hidden; background: var(--line); }
.tile { background: var(--card); padding: 15px 15px 14px; flex: 1 1 136px; }
.tile .value { font-size: 26px; font-weight: 620; letter-spacing: -.03em; line-height: 1.2; white-space: nowrap; }
.tile .value small { font-size: 15px; font-weight: 500; color: var(--soft); letter-spacing: 0; margin-left: 2px; }
.tile .name { color: var(--soft); font-size: 13px; }
.tile .note { color: var(--soft); font-size: 12.5px; margin-top: 3px; }
.tile.lead .value { color: var(--accent); }

.screens { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(260px, 100%), 1fr)); gap: 14px; }
figure { margin: 0; min-width: 0; }
.screens figure:only-child { width: 100%; max-width: 560px; justify-self: center; }
figure video, figure canvas.wide { width: 100%; display: block; border-radius: 9px; background: #000; }
figcaption { display: flex; justify-content: space-between; gap: 8px; font-size: 13px; padding-top: 7px; }
figcaption span + span { color: var(--soft); }
.player { display: flex; align-items: center; gap: 12px; margin-top: 12px; }
button { font: inherit; color: var(--ink); background: transparent; border: 1px solid var(--line); border-radius: 9px;
  padding: 5px 14px; cursor: pointer; min-width: 84px; }
button:hover { border-color: var(--accent); }
button:focus-visible, input:focus-visible, select:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
input[type=range] { flex: 1; accent-color: var(--accent); min-width: 60px; }
.sheet { width: 100%; margin-top: 16px; border-radius: 6px; display: block; }

.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--soft); margin-top: 10px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.bars { display: grid; gap: 10px; }
.bar { display: grid; grid-template-columns: 84px minmax(0, 1fr) 74px; align-items: center; gap: 10px; }
.bar > span:last-child { text-align: right; }
.stack { display: flex; height: 26px; gap: 1px; }
.stack i { display: block; height: 100%; border-radius: 2px; min-width: 1px; }
.stack i:first-child { border-radius: 6px 2px 2px 6px; }
.stack i:last-child { border-radius: 2px 6px 6px 2px; }

.heat { display: grid; gap: 2px; font-size: 11.5px; color: var(--soft); align-items: center; }
.heat .cell { aspect-ratio: 1.7; border-radius: 3px; display: grid; place-items: center; font-size: 11px; min-width: 0;
  overflow: hidden; }
.heat .head { text-align: center; }
.heat.many { gap: 1px; font-size: 10px; line-height: 1.2; }
.heat.many .cell { aspect-ratio: auto; height: 100%; min-height: 11px; border-radius: 1px; }
.pair.wide { grid-template-columns: minmax(0, 1fr); gap: 0; }
.pair.wide svg { max-width: 560px; }
.heat .mean { border-left: 2px solid var(--card); }
.scale { display: flex; align-items: center; gap: 8px; color: var(--soft); font-size: 12.5px; margin-top: 12px; }
.scale i { flex: 0 0 120px; height: 8px; border-radius: 4px; }
svg { display: block; width: 100%; overflow: visible; }
svg text { fill: var(--soft); font-size: 11.5px; font-family: inherit; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .curve { fill: none; stroke: var(--accent); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
svg .area { fill: var(--accent); opacity: .1; }
svg .dot { fill: var(--card); stroke: var(--accent); stroke-width: 2; }

.masks { display: grid; grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); gap: 14px; }
.masks canvas { width: 100%; aspect-ratio: 1; display: block; image-rendering: pixelated; border-radius: 6px;
  border: 1px solid var(--line); }
.masks figcaption { font-size: 12px; padding-top: 4px; white-space: nowrap; }
.masks.short figure:nth-child(n+25) { display: none; }
.masks.pairs { grid-template-columns: repeat(auto-fill, minmax(232px, 1fr)); }
.masks .both { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr); gap: 4px; cursor: crosshair; }
.masks figure.chosen canvas { border-color: var(--select); }
#view figure { margin-top: 14px; }
#view canvas { display: block; max-width: 100%; }
select { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--line); border-radius: 9px;
  padding: 5px 10px; }
.more { margin-top: 14px; }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 550; color: var(--soft); font-size: 12.5px; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.number { text-align: right; white-space: nowrap; }
td code, pre { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 5px 18px; margin: 0; font-size: 13.5px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
details { margin-top: 16px; } summary { cursor: pointer; color: var(--soft); }
pre { overflow: auto; max-height: 420px; margin: 12px 0 0; }
footer { color: var(--soft); font-size: 12.5px; margin-top: 22px; }
@media (max-width: 760px) {
  main { padding: 18px 12px 40px; } section { padding: 16px 14px; border-radius: 12px; }
  .pair { grid-template-columns: minmax(0, 1fr); gap: 0; } .where { margin-left: 0; flex-basis: 100%; }
  .tiles { padding: 0; } .tile { flex-basis: 40%; } .tile .value { font-size: 24px; }
  .bar { grid-template-columns: 62px minmax(0, 1fr) 60px; gap: 8px; font-size: 13px; }
  .masks { grid-template-columns: repeat(auto-fill, minmax(84px, 1fr)); gap: 10px; }
  .masks.pairs { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
  .heat .cell { font-size: 0; }
}
@media print { section { break-inside: avoid; box-shadow: none; } .player, .more { display: none; } }
)css";

}  // namespace tulle::page
