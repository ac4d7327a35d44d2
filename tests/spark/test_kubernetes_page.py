"""The spark-submit of docs/clusters.md for Kubernetes, up to Spark's request for the driver's pod."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.amounts import only_long
from tests.support.installed import ROOT
from tests.support.kubernetes_api import kubernetes_api
from tests.support.pages import block
from tests.support.standalone_cluster import SPARK_HOME
from tests.support.submission import PAGE, replaced

EXAMPLES = ROOT / "examples" / "kubernetes"
LOCKED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.behaviour("Package", "The pod that the page's spark-submit asks Kubernetes for is what the page says")
@only_long
def test_pod_is_what_the_page_says(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "pod.yaml", tmp_path)
    with kubernetes_api() as (address, created):
        commands = replaced(block(PAGE, "k8s://"), "https://kubernetes.example:6443", address)
        commands = commands.replace(
            "spark-submit", "spark-submit --conf spark.kubernetes.submission.waitAppCompletion=false", 1
        )
        environ = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "PATH": f"{SPARK_HOME / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=600, check=False
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    (pod,) = (each for each in created if each["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example/orders:1"
    assert container["securityContext"] == LOCKED
    assert pod["spec"]["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 185}.items()
    assert pod["spec"]["terminationGracePeriodSeconds"] == 120
    # A heap of 1 GiB, and 1280 MiB of overhead.
    assert container["resources"]["limits"]["memory"] == "2304Mi"
    assert mounts(container) >= {"/etc/kafka", "/tmp", "/opt/spark/work-dir"}
    assert "local:///opt/orders/orders.py" in container["args"]
    (settings,) = (
        each["data"]["spark.properties"]
        for each in created
        if each["kind"] == "ConfigMap" and "spark.properties" in each["data"]
    )
    assert "spark.pyspark.python=/opt/kafkalite/bin/python" in settings


def mounts(container: dict[str, Any]) -> set[str]:
    return {mount["mountPath"] for mount in container["volumeMounts"]}
