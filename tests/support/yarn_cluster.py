"""Hadoop's own YARN cluster for tests (MiniYARNCluster): a ResourceManager and two NodeManagers in one JVM, whose
containers are processes of this machine. ``scripts/test.sh --yarn`` fetches its jars."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

#: The folder with the jars.
JARS: Final = os.environ.get("KAFKALITE_YARN_JARS", "")
_LOCAL_FILES: Final = {"fs.defaultFS": "file:///"}
#: Differences from a cluster of many machines: small containers, and files that may fill this machine's disk.
_SETTINGS: Final = _LOCAL_FILES | {
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.resourcemanager.scheduler.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
}


@contextlib.contextmanager
def yarn_cluster(folder: Path) -> Iterator[Path]:
    """Within, a cluster with its files in *folder* runs; yields its configuration's folder (``HADOOP_CONF_DIR``)."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    conf = folder / "conf"
    conf.mkdir()
    with (folder / "yarn.log").open("w") as log:
        port, process = launch_gateway(
            classpath=f"{JARS}/*:{spark_jars}/*",
            javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.dir={folder}"],
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            cwd=folder,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            jvm: Any = gateway.jvm
            cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("kafkalite", 1, 2, 1, 1)
            cluster.init(_configuration(jvm, _SETTINGS))
            cluster.start()
            _write(jvm, cluster.getConfig(), conf / "yarn-site.xml")
            _write(jvm, _configuration(jvm, _LOCAL_FILES), conf / "core-site.xml")
            yield conf
            # Ends the containers.
            cluster.stop()
        finally:
            gateway.close()
            process.kill()
            process.wait()


def _configuration(jvm: Any, settings: dict[str, str]) -> Any:
    configuration = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in settings.items():
        configuration.set(name, value)
    return configuration


def _write(jvm: Any, configuration: Any, file: Path) -> None:
    out = jvm.java.io.FileOutputStream(str(file))
    configuration.writeXml(out)
    out.close()
