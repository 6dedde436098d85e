#!/usr/bin/env python3
"""Renders results/*.json to docs/results.md. Called by ./dev results; --check fails when the page is out of date.

A record file is a list of objects with the keys in FIELDS; a record with other keys is refused.
"""
import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = ["bench", "name", "metric", "unit", "better", "value", "spread", "n", "baseline", "baseline_value", "ratio",
          "machine", "commit", "date", "command"]


def load(path):
    records = json.loads(path.read_text())
    for record in records:
        missing, extra = set(FIELDS) - set(record), set(record) - set(FIELDS)
        if missing or extra:
            sys.exit(f"{path}: record {record.get('name')}: missing {sorted(missing)}, unknown {sorted(extra)}")
    return records


def number(value):
    return "" if value is None else f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def table(records):
    lines = ["| name | metric | value | spread | n | baseline | ratio | commit | date |", "|---|---|---|---|---|---|---|---|---|"]
    for r in records:
        spread = r["spread"]
        spread = " to ".join(number(x) for x in spread) if isinstance(spread, list) else number(spread)
        lines.append(f"| {r['name']} | {r['metric']} ({r['unit']}, {r['better']} is better) | {number(r['value'])} | {spread} "
                     f"| {r['n']} | {r['baseline']}: {number(r['baseline_value'])} | {number(r['ratio'])} | {r['commit']} | {r['date']} |")
    return lines


def render():
    lines = ["# Measured figures", "", "Rendered by `./dev results` from `results/*.json`; every record was written by the benchmark that",
             "measured it, with its baseline in the same run. Medians; the spread is the 10th to 90th percentile unless the",
             "benchmark says otherwise.", ""]
    for path in sorted((ROOT / "results").glob("*.json")):
        records = load(path)
        lines += [f"## {path.stem}", ""]
        for machine in sorted({r["machine"] for r in records}):
            here = [r for r in records if r["machine"] == machine]
            commands = sorted({r["command"] for r in here})
            lines += [f"{machine}. " + "; ".join(f"`{c}`" for c in commands), ""] + table(here) + [""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when docs/results.md is out of date")
    check = parser.parse_args().check
    page, text = ROOT / "docs" / "results.md", render()
    if not check:
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        sys.exit("docs/results.md is out of date: run ./dev results")


if __name__ == "__main__":
    main()
