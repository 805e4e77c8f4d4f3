"""Generates the dashboards for Grafana that the chart ships.

usage: dashboards.py [--check]

With --check, names the files that differ from what it would write, and exits 1.
"""

import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FOLDER = os.path.join(ROOT, "deploy/helm/djinn/files/dashboards")
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}
# "All" also matches series without the label.
_NAMESPACE = {
    "name": "namespace", "label": "Namespace", "type": "query", "datasource": _SOURCE,
    "query": {"query": "label_values(djinn_build_info, namespace)", "refId": "namespace"},
    "refresh": 2, "sort": 1, "multi": False, "includeAll": True, "allValue": ".*",
    "current": {"text": "All", "value": "$__all"},
}
_METRIC = re.compile(r"\b((?:djinn|process|grpc_server)_\w+)(?:\{([^}]*)\})?")


def _of_namespace(expression):
    """The expression with the namespace that is selected in each of its selectors."""
    def select(found):
        matchers = 'namespace=~"$namespace"' + ("," + found[2] if found[2] else "")
        return f"{found[1]}{{{matchers}}}"

    return _METRIC.sub(select, expression)


def _rate(metric, by="", match=""):
    total = f"sum by ({by}) " if by else "sum"
    return f"{total}(rate({metric}{match}[$__rate_interval]))"


def _quantile(quantile, metric, match=""):
    return (f"histogram_quantile({quantile}, "
            f"sum by (le) (rate({metric}_bucket{match}[$__rate_interval])))")


def _quantiles(metric, match=""):
    return [(_quantile(one, metric, match), f"p{one * 100:g}") for one in (0.5, 0.95, 0.99)]


# {name: (title, [(row, [(panel, unit, [(expression, legend)])])])}
DASHBOARDS = {
    "cluster": ("Djinn: cluster", [
        ("Is it well?", [
            ("Coordinators that lead", "short", [("sum(djinn_coordinator_leader)", "leaders")]),
            ("Workers by state", "short", [("sum by (state) (djinn_worker_state)", "{{state}}")]),
            ("Conditions that fail", "short",
             [("1 - djinn_ready", "{{instance}} {{check}}")]),
        ]),
        ("Work", [
            ("Runs per second", "ops", [(_rate("djinn_requests_total", "code"), "{{code}}")]),
            ("Time of a run", "s", _quantiles("djinn_request_duration_seconds")),
            ("Wait for a turn", "s", _quantiles("djinn_queue_wait_seconds")),
            ("Time to the first result", "s", _quantiles("djinn_time_to_first_result_seconds")),
            ("Time between results", "s", _quantiles("djinn_inter_result_seconds")),
            ("Device time per second, by phase", "short",
             [(_rate("djinn_worker_device_busy_seconds_total", "phase"), "{{phase}}")]),
        ]),
        ("What waits", [
            ("Virtual devices that wait for a worker", "short",
             [("sum by (reason) (djinn_pending_leases)", "{{reason}}")]),
            ("Runs that wait", "short",
             [("sum by (priority_class) (djinn_pending_runs)", "{{priority_class}}")]),
            ("Refusals per second", "ops",
             [(_rate("djinn_rejections_total", "reason"), "{{reason}}")]),
        ]),
        ("Scale", [
            ("Demand in devices", "short",
             [("sum by (phase) (djinn_scale_demand_devices)", "{{phase}}")]),
            ("Workers that it needs", "short",
             [("sum by (phase) (djinn_scale_desired_workers)", "{{phase}}")]),
            ("Recoveries per second", "ops",
             [(_rate("djinn_recoveries_total", "kind, result"), "{{kind}} {{result}}")]),
            ("Messages computed again, and bytes of checkpoints, per second", "short",
             [(_rate("djinn_replayed_nodes_total"), "messages"),
              (_rate("djinn_checkpoint_bytes_total"), "bytes")]),
        ]),
    ]),
    "tenants": ("Djinn: tenants", [
        ("Shares", [
            ("Memory against quota", "bytes",
             [('sum by (tenant) (djinn_tenant_usage{resource="memory_bytes"})',
               "{{tenant}} uses"),
              ('sum by (tenant) (djinn_tenant_quota_nominal{resource="memory_bytes"})',
               "{{tenant}} owns")]),
            ("Borrowed, by weight", "short",
             [("max by (tenant) (djinn_tenant_weighted_share_ratio)", "{{tenant}}")]),
            ("Device time per second", "short",
             [(_rate("djinn_tenant_device_seconds_total", "tenant"), "{{tenant}}")]),
            ("Sessions", "short",
             [('sum by (tenant) (djinn_tenant_usage{resource="sessions"})', "{{tenant}}")]),
            ("Bytes per second", "Bps",
             [(_rate("djinn_tenant_bytes_total", "tenant"), "{{tenant}}")]),
            ("Stopped queues", "short", [("djinn_queue_stopped == 1", "{{tenant}}")]),
        ]),
        ("Waits and refusals", [
            ("Oldest work that waits", "s",
             [("max by (tenant) (djinn_oldest_pending_age_seconds)", "{{tenant}}")]),
            ("Refusals per second", "ops",
             [(_rate("djinn_rejections_total", "tenant, reason"), "{{tenant}} {{reason}}")]),
            ("Run deadlines that are not kept, per second", "ops",
             [(_rate("djinn_run_deadlines_total", "tenant, result", '{result!="attained"}'),
               "{{tenant}} {{result}}")]),
        ]),
        ("Preemption", [
            ("Per second", "ops",
             [(_rate("djinn_preemptions_total", "preemptor_tenant, victim_tenant"),
               "{{preemptor_tenant}} before {{victim_tenant}}")]),
            ("Time until a turn yields", "s", _quantiles("djinn_preemption_duration_seconds")),
            ("Device time lost per second", "short",
             [(_rate("djinn_preemption_lost_device_seconds_total"), "lost")]),
        ]),
        ("Resident models", [
            ("Models", "short", [("sum by (tenant) (djinn_worker_models)", "{{tenant}}")]),
            ("Their memory", "bytes",
             [("sum by (tenant) (djinn_worker_model_bytes)", "{{tenant}}")]),
            ("Memory at the workers", "bytes",
             [("sum by (tenant) (djinn_worker_tenant_memory_bytes)", "{{tenant}}")]),
        ]),
    ]),
    "workers": ("Djinn: workers", [
        ("Memory", [
            ("Use by residency", "bytes",
             [("sum by (worker, residency) (djinn_worker_device_memory_bytes)",
               "{{worker}} {{residency}}")]),
            ("Pressure", "short", [("djinn_worker_memory_pressure", "{{worker}}")]),
            ("Available at the device", "bytes",
             [("djinn_worker_device_available_bytes", "{{worker}}")]),
            ("Caches", "bytes",
             [("sum by (cache, residency) (djinn_cache_bytes)", "{{cache}} {{residency}}")]),
            ("Look-ups that hit", "percentunit",
             [('sum by (cache) (rate(djinn_cache_requests_total{result="hit"}[$__rate_interval]))'
               " / sum by (cache) (rate(djinn_cache_requests_total[$__rate_interval]))",
               "{{cache}}")]),
            ("Idle time of what is evicted", "s",
             _quantiles("djinn_state_idle_before_evict_seconds")),
        ]),
        ("Execution", [
            ("Busy share of the device", "percentunit",
             [(_rate("djinn_worker_device_busy_seconds_total", "instance"), "{{instance}}")]),
            ("Operator calls per second", "ops",
             [(_rate("djinn_worker_nodes_total", "result"), "{{result}}")]),
            ("Turns", "s", _quantiles("djinn_worker_step_seconds")),
            ("Runs in a batch", "short", [(_quantile(0.5, "djinn_batch_runs"), "median"),
                                          (_quantile(0.99, "djinn_batch_runs"), "p99")]),
            ("Wait for a batch", "s", _quantiles("djinn_batch_wait_seconds")),
            ("Error of predicted starts", "s", _quantiles("djinn_start_prediction_error_seconds")),
        ]),
        ("Transfers and sessions", [
            ("Bytes per second", "Bps",
             [(_rate("djinn_transfer_bytes_total", "path, kind"), "{{path}} {{kind}}")]),
            ("Sessions", "short",
             [("sum by (state) (djinn_worker_sessions)", "{{state}}")]),
            ("Sessions with caches of keys and values", "short",
             [("sum by (tenant) (djinn_worker_kv_sessions)", "{{tenant}}")]),
            ("Their caches", "bytes",
             [("sum by (tenant) (djinn_worker_kv_bytes)", "{{tenant}}")]),
            ("Connections", "short", [("djinn_worker_connections", "{{instance}}")]),
            ("Device events per second", "ops",
             [(_rate("djinn_worker_device_events_total", "event"), "{{event}}")]),
            ("Age of reports", "s", [("djinn_worker_report_age_seconds", "{{worker}}")]),
            ("Content disk writable", "short", [("djinn_content_disk_writable", "{{instance}}")]),
        ]),
    ]),
    "coordinator": ("Djinn: coordinator", [
        ("Decisions", [
            ("Placement attempts per second", "ops",
             [(_rate("djinn_scheduling_attempts_total", "result"), "{{result}}")]),
            ("Time of a decision", "s", _quantiles("djinn_scheduling_decision_seconds")),
            ("Migrations per second", "ops",
             [(_rate("djinn_migrations_total", "reason, result"), "{{reason}} {{result}}")]),
            ("Pause of a migration", "s", _quantiles("djinn_migration_pause_seconds")),
            ("Leases that clients return, per second", "ops",
             [(_rate("djinn_returned_leases_total", "why"), "{{why}}")]),
            ("Time until a peer is back", "s",
             _quantiles("djinn_recovery_duration_seconds", '{stage="total"}')),
        ]),
        ("State and configuration", [
            ("Writes per second", "ops",
             [(_rate("djinn_store_writes_total", "result"), "{{result}}")]),
            ("Time of a write", "s", _quantiles("djinn_store_write_duration_seconds")),
            ("Graph store", "bytes", [("djinn_graph_store_bytes", "{{instance}}")]),
            ("Last reload successful", "short",
             [("djinn_config_last_reload_successful", "{{instance}}")]),
            ("Term", "short", [("djinn_coordinator_term", "{{instance}}")]),
            ("Certificates end in", "s",
             [("djinn_certificate_expiry_timestamp_seconds - time()",
               "{{instance}} {{key}}")]),
        ]),
        ("Processes", [
            ("Calls per second", "ops",
             [(_rate("grpc_server_call_started_total", "grpc_method"), "{{grpc_method}}")]),
            ("Memory", "bytes", [("process_resident_memory_bytes", "{{instance}}")]),
            ("Processor", "short",
             [(_rate("process_cpu_seconds_total", "instance"), "{{instance}}")]),
        ]),
    ]),
}


def _panel(number, title, unit, targets, left, top):
    return {
        "id": number, "type": "timeseries", "title": title, "datasource": _SOURCE,
        "gridPos": {"x": left, "y": top, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _SOURCE,
             "expr": _of_namespace(expression), "legendFormat": legend}
            for i, (expression, legend) in enumerate(targets)],
    }


def dashboard(name):
    title, rows = DASHBOARDS[name]
    panels, top = [], 0
    for row, members in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "collapsed": False,
                       "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []})
        top += 1
        for i, (panel, unit, targets) in enumerate(members):
            panels.append(_panel(len(panels) + 1, panel, unit, targets,
                                 i % _COLUMNS * _WIDTH, top + i // _COLUMNS * _HEIGHT))
        top += -(-len(members) // _COLUMNS) * _HEIGHT
    return {
        "uid": "djinn-" + name, "title": title, "tags": ["djinn"], "schemaVersion": 39,
        "editable": True, "graphTooltip": 1, "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource",
                                 "query": "prometheus"}, _NAMESPACE]},
        "panels": panels,
    }


def text(name):
    return json.dumps(dashboard(name), indent=1) + "\n"


def path(name):
    return os.path.join(FOLDER, name + ".json")


def main(arguments):
    wrong = []
    for name in DASHBOARDS:
        if arguments == ["--check"]:
            with open(path(name), encoding="utf-8") as file:
                if file.read() != text(name):
                    wrong.append(path(name))
        else:
            with open(path(name), "w", encoding="utf-8") as file:
                file.write(text(name))
    for one in wrong:
        print(f"{os.path.relpath(one, ROOT)} differs: run deploy/monitoring/dashboards.py")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
