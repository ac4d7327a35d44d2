#!/usr/bin/env bash
# A real Kubernetes for tests, on this machine and without a registry of images: the API server, the scheduler, the
# controllers and the kubelet of Kubernetes with etcd, and Debian's containerd, runc and network plugins.
#
#   scripts/kubernetes.sh prepare               install what is missing, and build Kubernetes (once: half an hour)
#   scripts/kubernetes.sh run COMMAND…          run a command in namespaces of its own for network, mounts and
#                                               processes, with the programs in its PATH: what it starts ends with it
#
# Needs root on Linux with cgroups of version 1, Debian's packages, Go 1.24 or newer, and for the build 3 GB; run says
# if it lacks root or the cgroups. KAFKALITE_KUBERNETES names a folder with the five built programs (default
# .work/kubernetes). tests/support/kubernetes_cluster.py starts them.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The last minor version that runs on cgroups of version 1 without being asked.
VERSION=1.34.4
# Of the client in that version of Kubernetes. Debian's 3.4.23 is too old: it does not report the progress of a watch,
# so the API server refuses the watches of Spark's client.
ETCD_VERSION=3.6.4
PROGRAMS="etcd kube-apiserver kubelet kube-scheduler kube-controller-manager"
BIN="${KAFKALITE_KUBERNETES:-$WORK/kubernetes}"
CGROUP=kafkalite-kubernetes

install_packages() {
    command -v containerd >/dev/null || install_first_of containerd
    command -v runc >/dev/null || install_first_of runc
    [ -x /usr/lib/cni/bridge ] || install_first_of containernetworking-plugins
}

# write_module: a Go module that needs Kubernetes, whose own libraries are published as modules of the same version.
write_module() {
    local library
    printf 'module kubernetes\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n' "$VERSION"
    printf 'require go.etcd.io/etcd/server/v3 v%s\n\nreplace (\n' "$ETCD_VERSION"
    for library in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider \
        cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api cri-client \
        csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator \
        kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission \
        sample-apiserver; do
        printf '\tk8s.io/%s => k8s.io/%s v0.%s\n' "$library" "$library" "${VERSION#1.}"
    done
    printf ')\n'
}

build() {
    local program package missing=""
    for program in $PROGRAMS; do [ -x "$BIN/$program" ] || missing="$missing $program"; done
    [ -n "$missing" ] || return 0
    command -v go >/dev/null || die "Go 1.24 or newer is needed to build Kubernetes."
    say "building$missing $VERSION (once: half an hour) …"
    mkdir -p "$BIN/build"
    write_module >"$BIN/build/go.mod"
    for program in $missing; do
        package="k8s.io/kubernetes/cmd/$program"
        [ "$program" != etcd ] || package=go.etcd.io/etcd/server/v3
        # Not `go mod tidy`, which downloads the modules of all tests.
        (cd "$BIN/build" && nice -n 19 go build -mod=mod -gcflags=all=-dwarf=false -ldflags '-s -w' \
            -o "$program" "$package") >"$BIN/build.log" 2>&1 || {
            tail -n 20 "$BIN/build.log" >&2
            die "could not build $program; complete log: $BIN/build.log"
        }
        mv "$BIN/build/$program" "$BIN/$program"
    done
}

prepare() {
    install_packages || die "containerd, runc or the network plugins cannot be installed (Debian has them)."
    build
}

# remove_cgroups: those of the pods, which end later than the namespace of their processes.
remove_cgroups() {
    local attempt
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        find /sys/fs/cgroup -depth -type d -path "*/$CGROUP*" -exec rmdir {} + 2>/dev/null && return
        sleep 1
    done
}

case "${1:-}" in
    prepare) prepare ;;
    run)
        shift
        if [ "$(id -u)" != 0 ] || [ ! -d /sys/fs/cgroup/memory ]; then
            say "kubernetes: skipped: pods need root, and cgroups of version 1"
            exit 0
        fi
        prepare
        trap remove_cgroups EXIT
        # The folders are those that containerd, the kubelet and the network plugins write to wherever their own files
        # are. The shell that is the first process inherits those whose parents have ended.
        PATH="$BIN:$PATH" KAFKALITE_KUBERNETES_CGROUP="$CGROUP" \
            unshare --net --mount --pid --mount-proc --fork --kill-child bash -euc '
                ip link set lo up
                for folder in /run /var/log /var/lib/cni /var/lib/kubelet; do
                    mkdir -p "$folder"
                    mount -t tmpfs tmpfs "$folder"
                done
                "$@" || exit' namespaces "$@"
        ;;
    *)
        usage
        [ "${1:-}" = --help ] || exit 2
        ;;
esac
