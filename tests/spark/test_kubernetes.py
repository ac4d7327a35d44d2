"""The spark-submit of docs/clusters.md on a real Kubernetes of one node: only with ``scripts/test.sh --kubernetes``."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Figure
from tests.support import cluster_job
from tests.support.container_image import write_image
from tests.support.installed import ROOT, Environment
from tests.support.killer import Killer
from tests.support.kubernetes_cluster import CGROUP, HOST, Kubernetes, kubernetes_cluster
from tests.support.pages import block
from tests.support.pod_memory import PodMemory
from tests.support.readback import read_topic
from tests.support.real_kafka import RealKafka, running_kafka
from tests.support.standalone_cluster import SPARK_HOME
from tests.support.submission import PAGE, Submission, replaced
from tests.support.waiting import until

pytestmark = [pytest.mark.skipif(not CGROUP, reason="only with --kubernetes"), pytest.mark.timeout(3000)]
ROWS = 40_000
#: Read in every run, so that the test fails without Kubernetes, too, if the page no longer has the command.
COMMAND = block(PAGE, "k8s://")
NAMESPACE = "orders"
IMAGE = "registry.example/orders:1"
JOB_S = 1500.0
#: The folder for input and checkpoints in all pods.
DATA = "/data"
#: The listener for the pods. The ports are free in a network namespace.
KAFKA = (
    *("--port", "19092", "controller.quorum.voters=1@127.0.0.1:19093"),
    f"listeners=PLAINTEXT://127.0.0.1:19092,PODS://{HOST}:9092,CONTROLLER://127.0.0.1:19093",
    f"advertised.listeners=PLAINTEXT://127.0.0.1:19092,PODS://{HOST}:9092",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PODS:PLAINTEXT",
)
#: The part of the entry point of Apache's Spark image that the pods need.
ENTRY = """#!/bin/bash
set -eu
role=$1
shift
case "$role" in
    driver)
        exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \\
            --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@" ;;
    executor)
        mapfile -t options < <(env | grep ^SPARK_JAVA_OPT_ | sort -t _ -k 4 -n | cut -d = -f 2-)
        exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \\
            -cp "$SPARK_CONF_DIR:$SPARK_HOME/jars/*" \\
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url "$SPARK_DRIVER_URL" \\
            --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \\
            --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \\
            --podName "$SPARK_EXECUTOR_POD_NAME" ;;
esac
"""
#: The script that Kubernetes runs before it ends an executor (``spark.decommission.enabled``).
DECOMMISSION = """#!/bin/bash
kill -s SIGPWR 1
timeout 60 tail --pid=1 -f /dev/null
"""
#: Pods request a small share of a small machine's CPUs, and failed pods remain for the test to read. The test itself
#: waits for the driver, even for one that it kills.
SETTINGS = """
spark.kubernetes.submission.waitAppCompletion false
spark.kubernetes.driver.request.cores 100m
spark.kubernetes.executor.request.cores 100m
spark.kubernetes.executor.deleteOnTermination false
spark.driver.defaultJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.defaultJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
#: A job with rows of 1 kB: large.py BOOTSTRAP TOPIC ROWS.
LARGE = textwrap.dedent("""
    import sys
    from pyspark.sql import SparkSession
    import kafka_sink
    spark = SparkSession.builder.getOrCreate()
    kafka_sink.register(spark)
    numbers = spark.range(0, int(sys.argv[3]), 1, 4).selectExpr("cast(id as string) key", "repeat('x', 1000) value")
    writer = numbers.write.format("kafkalite").mode("append").option("topicPartitions", 4)
    writer.option("kafka.bootstrap.servers", sys.argv[1]).option("topic", sys.argv[2]).save()
    spark.stop()
""")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka"), *KAFKA) as running:
        yield running


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    with kubernetes_cluster(tmp_path_factory.mktemp("kubernetes")) as running:
        running.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "spark"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kafka"}, "stringData": {"password": "x"}}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "spark"},
            "subjects": [{"kind": "ServiceAccount", "name": "spark", "namespace": NAMESPACE}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        }
        running.create(NAMESPACE, account, secret, binding)
        yield running


class Job:
    """The submission of the page: its image, with this machine's programs in mounted folders, and the job."""

    def __init__(self, folder: Path, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._jobs = folder / "jobs"
        self._jobs.mkdir()
        data = folder / "data"
        data.mkdir()
        data.chmod(0o777)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON"))}
        environ |= {"SPARK_HOME": str(SPARK_HOME), "PATH": f"{SPARK_HOME / 'bin'}:{environ['PATH']}"}
        environ |= {"KUBECONFIG": str(kubernetes.kubeconfig)}
        self._submission = Submission(folder, environ)
        environment = Environment(folder / "environment")
        environment.install(*self._submission.folder.glob("*.whl"))
        mounted = {
            **{path: Path(path) for path in ("/usr", sys.base_prefix, sysconfig.get_path("purelib"))},
            **{f"/opt/spark/{name}": SPARK_HOME / name for name in ("bin", "jars", "python")},
            **{"/opt/kafkalite": environment.folder, "/opt/orders": self._jobs, DATA: data},
        }
        settings = "".join(f"{name} {value}\n" for name, value in volumes(mounted))
        (self._submission.folder / "spark-defaults.conf").write_text(SETTINGS + settings)
        shutil.copy(ROOT / "examples" / "kubernetes" / "pod.yaml", self._submission.folder)
        write_orders_image(folder / "orders.tar")
        kubernetes.load_image(folder / "orders.tar")

    def submit(self, source: str, *arguments: object, **settings: str) -> dict[str, Any]:
        """Submit the job *source* with *settings* that replace those of the page; return its driver's pod after it has
        ended or was killed."""
        (self._jobs / "orders.py").write_text(source)
        command = replaced(COMMAND, "https://kubernetes.example:6443", self._kubernetes.address)
        command = replaced(command, "orders.py\n", f"orders.py {' '.join(map(str, arguments))}\n")
        for old, new in settings.items():
            command = replaced(command, old, new)
        self._submission.run(command)
        name = self.pods("driver")[-1]["metadata"]["name"]
        last: dict[str, Any] = {}

        def ended() -> bool:
            found = [pod for pod in self.pods("driver") if pod["metadata"]["name"] == name]
            last.update(*found)
            return not found or last["status"]["phase"] in ("Succeeded", "Failed")

        until("the end of the driver", ended, JOB_S)
        return last

    def pods(self, role: str) -> list[dict[str, Any]]:
        return self._kubernetes.pods(NAMESPACE, f"spark-role={role}")

    def kill(self, role: str) -> bool:
        """Kill a running pod of *role*; return false if there is none."""
        running = [pod for pod in self.pods(role) if pod["status"]["phase"] == "Running"]
        for pod in running[:1]:
            self._kubernetes.kill(pod)
        return bool(running)


def volumes(mounted: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield Spark's settings that mount folders of the machine at their paths in pods."""
    for role in ("driver", "executor"):
        for number, (path, folder) in enumerate(mounted.items()):
            name = f"spark.kubernetes.{role}.volumes.hostPath.folder-{number}"
            yield f"{name}.mount.path", path
            yield f"{name}.mount.readOnly", str(path != DATA).lower()
            yield f"{name}.options.path", str(folder)


def write_orders_image(archive: Path) -> None:
    variables = {
        **{"PATH": "/usr/bin:/bin", "HOME": "/tmp", "JAVA_HOME": os.environ["JAVA_HOME"], "SPARK_HOME": "/opt/spark"},
        **{"PYSPARK_PYTHON": "/opt/kafkalite/bin/python", "PYSPARK_DRIVER_PYTHON": "/opt/kafkalite/bin/python"},
        **{"PYTHONDONTWRITEBYTECODE": "1"},
    }
    config = {
        "Entrypoint": ["/opt/entrypoint.sh"],
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "User": "185",
        "WorkingDir": "/opt/spark/work-dir",
    }
    files = {
        "opt/entrypoint.sh": ENTRY.encode(),
        "opt/decom.sh": DECOMMISSION.encode(),
        "etc/passwd": b"root:x:0:0::/root:/bin/bash\nspark:x:185:185::/tmp:/bin/bash\n",
        "etc/group": b"root:x:0:\nspark:x:185:\n",
    }
    # Debian's Java reads its settings from these files.
    java = (file for folder in Path("/etc").glob("java-*") for file in folder.rglob("*") if file.is_file())
    files |= {str(file).lstrip("/"): file.read_bytes() for file in java}
    folders = ("tmp", "proc", "sys", "dev", "usr", "opt/spark/work-dir")
    links = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
    write_image(archive, IMAGE, files, config, folders=folders, links=links)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, kubernetes: Kubernetes) -> Job:
    return Job(tmp_path_factory.mktemp("job"), kubernetes)


def counted(kafka: RealKafka, topic: str) -> tuple[int, int]:
    """Return how many of the numbers below ROWS are missing, and the number of values besides each of them once."""
    expected = Counter(str(number).encode() for number in range(ROWS))
    found = Counter(message.value or b"" for message in read_topic(kafka.bootstrap_servers, topic))
    return (expected - found).total(), (found - expected).total()


def was_killed(pod: dict[str, Any]) -> bool:
    """Return whether the kernel has killed the main process of a container of *pod* for its memory."""
    states = [
        state for each in pod["status"].get("containerStatuses", ()) for state in (each["state"], each["lastState"])
    ]
    return any(state.get("terminated", {}).get("reason") == "OOMKilled" for state in states)


@pytest.mark.behaviour(
    "Package", "What is written on Kubernetes in cluster mode is exact though an executor's pod dies"
)
def test_kubernetes_writes_exactly(job: Job, kafka: RealKafka, kubernetes: Kubernetes, figure: Figure) -> None:
    source = Path(cluster_job.__file__).read_text()
    with (
        PodMemory() as memory,
        Killer(kafka.bootstrap_servers, "pods-parallel", lambda: job.kill("executor")) as killer,
    ):
        driver = job.submit(source, f"{HOST}:9092", "pods", f"{DATA}/pods", ROWS)
    assert driver["status"]["phase"] == "Succeeded", kubernetes.log(driver)[-6000:]
    assert killer.killed == 1
    assert not any(seen.killed for seen in memory.pods.values())
    for way in cluster_job.WAYS:
        missing, more = counted(kafka, f"pods-{way}")
        figure(way, f"{ROWS} rows: missing {missing}, more {more}")
        assert (missing, more) == (0, 0), way


@pytest.mark.behaviour("Package", "A job on Kubernetes whose driver's pod dies is submitted again and writes the rest")
def test_killed_driver_is_submitted_again(job: Job, kafka: RealKafka, kubernetes: Kubernetes, figure: Figure) -> None:
    source = Path(cluster_job.__file__).read_text()
    arguments = (f"{HOST}:9092", "again", f"{DATA}/again", ROWS)
    for way in ("parallel", "stream"):
        with Killer(kafka.bootstrap_servers, f"again-{way}", lambda: job.kill("driver")) as killer:
            job.submit(source, *arguments)
        assert killer.killed == 1, way
    driver = job.submit(source, *arguments)
    assert driver["status"]["phase"] == "Succeeded", kubernetes.log(driver)[-6000:]
    for way in cluster_job.WAYS:
        missing, more = counted(kafka, f"again-{way}")
        figure(f"driver killed, {way}", f"{ROWS} rows: missing {missing}, more {more}")
        # At least once writes all rows in each run.
        assert (missing, more) == (0, 2 * ROWS if way == "once" else 0), way


@pytest.mark.behaviour("Package", "The memory that docs/clusters.md computes for an executor's pod is enough")
def test_memory_of_the_page_is_enough(job: Job, kafka: RealKafka, kubernetes: Kubernetes, figure: Figure) -> None:
    rows = 1_000_000
    # The default of 384m, and two tasks: 2 × (160m + 32m).
    settings = {
        "executor.memory=2g": "executor.memory=512m",
        "executor.memoryOverhead=1280m": "executor.memoryOverhead=768m",
    }
    before = {pod["metadata"]["uid"] for pod in job.pods("executor")}
    with PodMemory() as memory:
        driver = job.submit(LARGE, f"{HOST}:9092", "large", rows, **settings)
    assert driver["status"]["phase"] == "Succeeded", kubernetes.log(driver)[-6000:]
    executors = [pod for pod in job.pods("executor") if pod["metadata"]["uid"] not in before]
    # No executor was replaced.
    assert len(executors) == 2
    assert not any(was_killed(pod) for pod in (driver, *executors))
    seen = [memory.pods[pod["metadata"]["uid"]] for pod in (driver, *executors)]
    assert [each.limit >> 20 for each in seen] == [1024 + 1280, 512 + 768, 512 + 768]
    assert [each.killed for each in seen] == [0, 0, 0]
    figure("resident memory of driver and executors in MiB", [each.resident >> 20 for each in seen])
    found = read_topic(kafka.bootstrap_servers, "large")
    assert len({message.key for message in found}) == len(found) == rows


def test_pod_over_its_limit_is_seen(job: Job, kubernetes: Kubernetes) -> None:
    container = {
        # Like a Python worker, tail is not the main process of its container.
        **{"name": "tail", "image": IMAGE, "command": ["/usr/bin/bash", "-c", "tail /dev/zero; sleep 3"]},
        **{"resources": {"limits": {"memory": "64Mi"}}, "volumeMounts": [{"name": "usr", "mountPath": "/usr"}]},
    }
    spec = {
        **{"restartPolicy": "Never", "containers": [container]},
        **{"volumes": [{"name": "usr", "hostPath": {"path": "/usr"}}]},
    }
    with PodMemory() as memory:
        kubernetes.create(NAMESPACE, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": spec})
        where = f"/api/v1/namespaces/{NAMESPACE}/pods/large"
        until("the end of the pod", lambda: was_killed(kubernetes.call("GET", where)))
    pod = kubernetes.call("GET", where)
    assert memory.pods[pod["metadata"]["uid"]].killed
