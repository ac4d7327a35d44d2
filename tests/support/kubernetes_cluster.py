"""A Kubernetes cluster of one node, whose pods are containers of this machine. ``scripts/kubernetes.sh run`` provides
its programs, and the namespaces in which it must run; all of its processes and mounts end with these.

Differences from other clusters: one node, only the images of :meth:`Kubernetes.load_image`, the DNS server of
:mod:`tests.support.cluster_dns`, and no kube-proxy, so that services have no addresses of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.certificates import Authority
from tests.support.cluster_dns import DOMAIN, serve_dns
from tests.support.container_image import program, write_image

#: Set in the namespaces: the parent of the pods' cgroups.
CGROUP: Final = os.environ.get("KAFKALITE_KUBERNETES_CGROUP", "")
#: This machine as pods see it: the gateway of their network.
HOST: Final = "10.253.0.1"
_NETWORK: Final = "10.253.0.0/24"
_SERVICES: Final = "10.254.0.0/24"
_ETCD: Final = "http://127.0.0.1:2379"
_PAUSE: Final = "local/pause:1"
_START_S: Final = 180.0
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: The cgroups of pods, by their quality of service class, with the cgroups of their containers.
POD_CGROUPS: Final = _CGROUPS / "memory" / CGROUP / "kubepods"


class Kubernetes:
    """Its API, as an administrator."""

    def __init__(self, folder: Path) -> None:
        self.address = f"https://{HOST}:443"
        self.kubeconfig = folder / "kubeconfig"
        self._folder = folder
        self._token = secrets.token_hex(16)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._sign()
        self._ssl = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    def call(self, method: str, path: str, content: object = None) -> Any:
        """Send *content* and return the API's response.

        :raises urllib.error.HTTPError: for an error response.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.address}{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30, context=self._ssl) as answer:
            return json.loads(answer.read())

    def create(self, namespace: str, *objects: dict[str, Any]) -> None:
        """Create objects of the core API, or of the group in their ``apiVersion``."""
        for each in objects:
            version = each["apiVersion"]
            api = f"/api/{version}" if "/" not in version else f"/apis/{version}"
            self.call("POST", f"{api}/namespaces/{namespace}/{each['kind'].lower()}s", each)

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the pods with these labels, the oldest first."""
        found = self.call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def kill(self, pod: dict[str, Any]) -> None:
        """Kill its processes (SIGKILL) and delete it, as if its node were lost: a pod that is only deleted has two
        seconds to end."""
        for file in POD_CGROUPS.glob(f"*/pod{pod['metadata']['uid']}/*/cgroup.procs"):
            for pid in file.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        where = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self.call("DELETE", where, {"gracePeriodSeconds": 0})

    def log(self, pod: dict[str, Any]) -> str:
        """Return the output of its containers."""
        name = f"{pod['metadata']['namespace']}_{pod['metadata']['name']}_{pod['metadata']['uid']}"
        return "".join(file.read_text(errors="replace") for file in (self._folder / "logs" / name).rglob("*.log"))

    def load_image(self, archive: Path) -> None:
        self._containerd("images", "import", str(archive))

    def start(self) -> None:
        """Start the cluster, and wait until the node is ready."""
        _run("ip", "link", "add", "pods", "type", "bridge")
        _run("ip", "addr", "add", f"{HOST}/24", "dev", "pods")
        _run("ip", "link", "set", "pods", "up")
        self._start(
            "etcd",
            f"--data-dir={self._folder}/etcd",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
        )
        self._start("kube-apiserver", *self._settings_of_api(), f"--etcd-servers={_ETCD}")
        self._await("kube-apiserver", lambda: bool(self.call("GET", "/version")))
        self._await("kube-apiserver", lambda: bool(self.call("GET", "/api/v1/namespaces/default")))
        self._start_node()
        kubeconfig = f"--kubeconfig={self.kubeconfig}"
        of_controllers = ("--controllers=*,-node-ipam-controller", f"--root-ca-file={self._folder}/ca.pem")
        key = f"--service-account-private-key-file={self._folder}/accounts.key"
        alone = ("--leader-elect=false", "--secure-port=0", kubeconfig)
        self._start("kube-scheduler", *alone)
        self._start("kube-controller-manager", *alone, *of_controllers, key)
        self._await("kubelet", self._is_ready)
        serve_dns(HOST, self._addresses_of)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def _sign(self) -> None:
        """Create the API's certificates, the key of the service accounts' tokens, and the administrator's token."""
        authority = Authority("kubernetes")
        server = authority.issue(HOST, "kubernetes.default.svc", common_name="kubernetes")
        accounts = authority.issue(common_name="accounts")
        user = {"token": self._token}
        cluster = {"server": self.address, "certificate-authority": str(self._folder / "ca.pem")}
        context = {"cluster": "here", "user": "admin"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": context}],
            "users": [{"name": "admin", "user": user}],
            "clusters": [{"name": "here", "cluster": cluster}],
        }
        written = {
            "ca.pem": authority.pem,
            "api.pem": server.certificate_pem,
            "api.key": server.key_pem(),
            "accounts.pem": accounts.certificate_pem,
            "accounts.key": accounts.key_pem(),
            "tokens.csv": f'{self._token},admin,admin,"system:masters"\n',
            "kubeconfig": json.dumps(config),
        }
        for name, text in written.items():
            (self._folder / name).write_text(text)
            (self._folder / name).chmod(0o600)

    def _settings_of_api(self) -> Iterator[str]:
        files = {
            "tls-cert-file": "api.pem",
            "tls-private-key-file": "api.key",
            "token-auth-file": "tokens.csv",
            "service-account-key-file": "accounts.pem",
            "service-account-signing-key-file": "accounts.key",
            "cert-dir": "certificates",
        }
        yield from (f"--{name}={self._folder / file}" for name, file in files.items())
        yield "--service-account-issuer=https://kubernetes.default.svc"
        yield f"--service-cluster-ip-range={_SERVICES}"
        yield "--authorization-mode=RBAC"
        yield f"--advertise-address={HOST}"
        yield f"--bind-address={HOST}"
        yield "--secure-port=443"

    def _start_node(self) -> None:
        folder = self._folder
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "pods",
                    "isGateway": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": _NETWORK}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (folder / "cni").mkdir()
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))
        # Only a root user that may raise priorities can set the OOM scores that the kubelet requests.
        (folder / "containerd.toml").write_text(f"""
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{_PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
""")
        self._start("containerd", "--config", str(folder / "containerd.toml"))
        self._await("containerd", lambda: bool(self._containerd("version")))
        # A container that only sleeps owns the network of a pod.
        pause = {"Entrypoint": ["/usr/bin/sleep", "infinity"]}
        write_image(folder / "pause.tar", _PAUSE, program("/usr/bin/sleep"), pause)
        self.load_image(folder / "pause.tar")
        for cgroup in _CGROUPS.iterdir():
            if (cgroup / "cgroup.procs").exists() and not cgroup.is_symlink():
                (cgroup / CGROUP).mkdir(exist_ok=True)
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}",
            "containerRuntimeEndpoint": "unix:///run/containerd.sock",
            "clusterDNS": [HOST],
            "clusterDomain": DOMAIN,
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "podLogsDir": str(folder / "logs"),
            "resolvConf": "",
        }
        (folder / "kubelet.json").write_text(json.dumps(settings))
        self._start(
            "kubelet",
            f"--kubeconfig={self.kubeconfig}",
            f"--config={folder}/kubelet.json",
            f"--root-dir={folder}/kubelet",
            "--hostname-override=node",
        )

    def _is_ready(self) -> bool:
        conditions = self.call("GET", "/api/v1/nodes/node")["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _addresses_of(self, service: str, namespace: str) -> list[str]:
        try:
            found = self.call("GET", f"/api/v1/namespaces/{namespace}/endpoints/{service}")
        except urllib.error.HTTPError:
            return []
        return [each["ip"] for subset in found.get("subsets", ()) for each in subset.get("addresses", ())]

    def _start(self, name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen([name, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _await(self, name: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                if condition():
                    return
            log = self._folder / f"{name}.log"
            assert time.monotonic() < deadline, f"{name} is not ready: {log.read_text()[-4000:]}"
            time.sleep(0.5)

    def _containerd(self, *arguments: str) -> str:
        return _run("ctr", "--address", "/run/containerd.sock", "--namespace", "k8s.io", *arguments)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@contextlib.contextmanager
def kubernetes_cluster(folder: Path) -> Iterator[Kubernetes]:
    """Within, a cluster with its files in *folder* runs; at the end, the pods of tests end with their namespaces."""
    cluster = Kubernetes(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
