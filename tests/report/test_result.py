"""result.json and the table of runs, and the page's first screen: the same numbers everywhere, without text or path."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from helpers.screens import contrast, masks, pairs, prompt, screen, stops
from maskwise.records.manifest import Manifest
from maskwise.report.prompts import environment
from maskwise.report.result import digests, result_of, table_of_runs
from maskwise.report.screen_view import screen_view

MODEL = {"name": "/home/me/my-model", "kind": "llada", "parameters": 8, "window": 64, "mask_id": 1}
MODEL |= {"shift": False, "causal": False, "dtype": "bfloat16", "fingerprint": "f00", "planted": "a fault in words"}
SETTINGS = {"preset": "quick", "tasks": ["t"], "questions": 16, "seed": 0, "chat": False}
PROBES = ["mask-count", "filler", "contrast", "total-correlation"]


def manifest(**settings):
    import msgspec

    given = {"model": MODEL, "settings": SETTINGS | {"probes": PROBES} | settings, "versions": {"maskwise": "0.3"}}
    return msgspec.convert(given | {"complete": True, "notes": ["a note"]}, Manifest)


def known(*wrong, **settings):
    given = {"masks": masks(*wrong), "stops": stops(10, 12), "distance": contrast(20, 80), "together": pairs(1.5, 0.0)}
    flips = [prompt(k, {"A": a, "B": 1 - a}) for k, a in ((2, 0.97), (200, 0.31))]
    own = replace(screen(prompts=flips, **given), manifest=manifest(**settings))
    measured = {"mask-count": [own.rows["masks"].change]}
    return SimpleNamespace(manifest=own.manifest, tables=own.tables, measured=measured, screen=own)


def test_a_result_has_every_estimate_once_and_no_text():
    run = known(10, 20, 85)
    found = result_of(run)
    text = json.dumps(found, default=dict)
    assert (
        "/home" not in text and "a note" not in text and "in words" not in text and found["model"]["name"] == "my-model"
    )
    named = [(one["probe"], one["name"]) for one in found["estimates"]]
    assert len(named) == len(set(named)) and found["mask_counts"]["mask-count"] == ["2", "20", "200"]
    lead = found["estimates"][0]
    assert lead["value"] == pytest.approx(-75 / 256) and lead["tasks_low"] < lead["value"] < lead["tasks_high"]
    assert found["verdicts"]["masks"] == {"verdict": "LOSS", "why": "mostly the masks"}
    assert {probe for probe, _ in named} == set(PROBES)


def test_digests_change_with_the_questions_alone():
    plain = digests(manifest())
    assert digests(manifest(preset="full", probes=PROBES[:1])) == {"mask-count": plain["mask-count"]}
    assert digests(manifest(parameters={"filler": {"n": 1}})) != plain
    assert digests(manifest(parameters={"filler": {"n": 1}}))["mask-count"] == plain["mask-count"]
    assert not set(digests(manifest(seed=1)).values()) & set(plain.values())


def test_runs_asked_otherwise_do_not_share_a_column():
    heads, rows = table_of_runs({"a": known(10, 20, 85), "b": known(10, 10, 10)})
    assert heads == ["run", "empty masks", "full stops", "distance", "at once"]
    assert [row[0] for row in rows] == ["a", "b"] and rows[0][1].endswith("LOSS, mostly the masks")
    heads, rows = table_of_runs({"a": known(10, 20, 85), "b": known(10, 10, 10, seed=1)})
    assert heads[1:3] == ["empty masks, settings 1", "full stops, settings 1"] and rows[1][1] == ""


def test_the_page_shows_the_numbers_of_the_result():
    run = known(10, 20, 85)
    shown = screen_view([run.screen, replace(known(0, 0, 0).screen, label="other")])
    page = environment().get_template("screen.html.jinja").render(first=shown)
    changes = re.findall(r'<td class="change">([^ ]+)', page)[::2]
    told = {one["name"]: one["value"] for one in result_of(run)["estimates"]}
    first = [told[run.screen.rows[key].change.name] for key in ("masks", "stops", "distance")]
    assert [float(one.replace("−", "-")) for one in changes] == pytest.approx(
        [100 * value for value in first], abs=0.051
    )
    assert "Chosen because it flips." in page and "<span>A ✓</span>" in page
    assert "<span>97 %</span>" in page and "<span>31 %</span>" in page
    assert shown["figure"]["wide"].startswith("<svg") and page.count('<ol class="do">') == 2
    assert all(0 <= at <= 100 for at, _ in shown["ticks"])
