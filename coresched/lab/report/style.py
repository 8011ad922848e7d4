"""The page's style sheet."""

STYLE = """
:root { --ink: #1b1f24; --soft: #5b6570; --rule: #dfe3e8; --paper: #fff; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 900px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0 0 8px; }
h2 { font-size: 18px; margin: 34px 0 6px; }
h3 { font-size: 15px; margin: 16px 0 0; }
.lead { font-size: 17px; margin: 0 0 8px; }
.note { color: var(--soft); font-size: 13px; }
table { border-collapse: collapse; width: 100%; margin: 14px 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 8px; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; color: var(--soft); font-size: 13px; white-space: normal; vertical-align: bottom; }
tbody tr:last-child { font-weight: 600; }
table.spread td:first-child { white-space: pre; }
table.spread tr:last-child { font-weight: inherit; }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--rule); stroke-width: 1; }
.tick { font-size: 12px; fill: var(--soft); } .axis { font-size: 12px; fill: var(--soft); }
.curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.key { display: inline-block; width: 18px; height: 0; border-top: 3px solid; margin-right: 6px;
  vertical-align: middle; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; padding-left: 58px; }
.first { stroke: #8a939c; border-color: #8a939c; } .curve.first { stroke-width: 2.4; }
.last { stroke: #c8371f; border-color: #c8371f; } .curve.last { stroke-width: 2.6; }
.b1 { stroke: #d79a00; border-color: #d79a00; } .b2 { stroke: #2a78c2; border-color: #2a78c2; }
.b3 { stroke: #2c9a68; border-color: #2c9a68; } .b4 { stroke: #8453b8; border-color: #8453b8; }
.b0 { stroke: #159aa5; border-color: #159aa5; }
.w0 { stroke: #2a78c2; border-color: #2a78c2; } .w1 { stroke: #d07a00; border-color: #d07a00; }
.w2 { stroke: #2c9a68; border-color: #2c9a68; } .w3 { stroke: #8453b8; border-color: #8453b8; }
.w4 { stroke: #c8371f; border-color: #c8371f; } .w5 { stroke: #159aa5; border-color: #159aa5; }
.box { display: inline-block; width: 14px; height: 10px; margin-right: 6px; }
.inference { fill: #2a78c2; background: #2a78c2; } .waiting { fill: #f0b357; background: #f0b357; }
.environment { fill: #9bc8a9; background: #9bc8a9; } .failed { fill: #c8371f; background: #c8371f; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; }
dt { font-weight: 600; }
dd { margin: 0; }
"""
