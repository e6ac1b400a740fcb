"""The dashboard and the alerts of `deploy/` are held to `/metrics`: every metric, label and status in them exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from tailrace.config.sections import Server
from tailrace.events import RunStatus
from tailrace.server.metrics.registry import Histogram, Metrics

DEPLOY = Path(__file__).parents[1] / "deploy"
METRICS = {metric.name: metric for metric in vars(Metrics()).values()}
SCRAPED = {"instance", "job"}  # the labels that Prometheus adds
SELECTOR = re.compile(r"\b(tailrace_\w+)(?:\{([^}]*)\})?(\[[^\]]+\])?")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')


def dashboard() -> Any:
    return json.loads((DEPLOY / "grafana/tailrace.json").read_text(encoding="utf-8"))


def rules() -> list[Any]:
    [group] = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def expressions() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def metric_of(sample: str) -> tuple[Any, set[str]]:
    """The metric of a sample's name, and the labels that it has."""
    for name, metric in METRICS.items():
        if isinstance(metric, Histogram):
            if sample == f"{name}_bucket":
                return metric, {"le"}
            if sample in (f"{name}_sum", f"{name}_count"):
                return metric, set()
        elif sample == name:
            return metric, set(metric.labels)
    raise AssertionError(f"/metrics has no {sample}")


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_what_an_expression_asks_for_is_in_the_metrics(where: str, expression: str) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    labels: set[str] = set()
    for sample, matchers, span in SELECTOR.findall(expression):
        metric, known = metric_of(sample)
        labels |= known
        assert (metric.kind == "gauge") == (not span), "rates of counters, values of gauges"
        for label, value in LABEL.findall(matchers):
            assert label in known | SCRAPED, f"{sample} has no label {label}"
            if (metric.name, label) == ("tailrace_runs_total", "status"):
                assert value in get_args(RunStatus)
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {label.strip() for label in grouped.split(",")} <= labels | SCRAPED
    if "histogram_quantile" in expression:
        assert re.search(r"by \([^)]*\ble\b", expression), "a quantile needs the buckets apart"


def test_the_dashboard_shows_every_metric() -> None:
    shown = {
        metric_of(sample)[0].name
        for panel in dashboard()["panels"]
        for target in panel["targets"]
        for sample, _, _ in SELECTOR.findall(target["expr"])
    }
    assert shown == set(METRICS)


def test_the_dashboard_can_be_imported() -> None:
    board = dashboard()
    assert board["schemaVersion"] >= 36
    assert board["uid"] == "tailrace"
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(board))) == variables, "each variable is defined and used"
    assert "label_values(tailrace_runs_running, instance)" in json.dumps(board["templating"])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    covered: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & covered, f"{panel['title']} lies over another panel"
        covered |= cells


def test_each_legend_names_a_label_that_its_expression_keeps() -> None:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = {label.strip() for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in by.split(",")}
            assert named <= kept, panel["title"]


def test_each_alert_waits_and_says_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"]["severity"] in ("page", "warn")
        assert set(rule["annotations"]) == {"summary", "description"}
        kept = {label.strip() for by in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in by.split(",")}
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= (kept or SCRAPED), rule["alert"]


def test_the_documents_explain_each_alert() -> None:
    page = (DEPLOY.parent / "docs/observability.md").read_text(encoding="utf-8")
    assert re.findall(r"^`(Tailrace\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in rules()]


def test_the_alert_on_the_limit_is_four_fifths_of_the_default() -> None:
    [rule] = [rule for rule in rules() if rule["alert"] == "TailraceNearRequestLimit"]
    assert int(rule["expr"].split()[-1]) == Server().max_requests * 4 // 5


def test_prometheus_scrapes_the_route_of_the_metrics_and_finds_the_rules() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text(encoding="utf-8"))
    [job] = config["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert f'job="{job["job_name"]}"' in rules()[0]["expr"]
    for file in config["rule_files"]:
        assert (DEPLOY / "prometheus" / file).is_file()
