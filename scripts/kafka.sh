#!/usr/bin/env bash
# A real Apache Kafka for tests, benchmarks and comparisons: KRaft brokers on the loopback interface.
#
#   scripts/kafka.sh start [--version V] [--nodes N] [--port P] [--dir DIR] [--listener NAME:PORT[:FRONT] …]
#                          [--controllers PORT:FRONT] [property=value …]
#   scripts/kafka.sh status [--dir DIR]
#   scripts/kafka.sh stop [--dir DIR]
#   scripts/kafka.sh stop-node N [--dir DIR]    stop one of several nodes, with a controlled shutdown
#   scripts/kafka.sh kill-node N [--dir DIR]    kill one node, as in a crash (kill -9)
#   scripts/kafka.sh start-node N [--dir DIR]   start it again; returns at once
#   scripts/kafka.sh fetch [--version V]        download the jars and Java's compiler if they are missing, and archive
#                                               the classes that a node loads (CDS), which halves its start time
#   scripts/kafka.sh run [--version V] CLASS [argument …]
#                                               run one of Kafka's own tools by its class name, such as
#                                               org.apache.kafka.tools.DumpLogSegments; a class that an older
#                                               version has in another package is found there
#   scripts/kafka.sh run-sources [--version V] DIR CLASS [argument …]
#                                               compile the Java sources in DIR with Kafka's jars, once for each content
#                                               of theirs, and run one of their classes; needs no JDK, because a compiler
#                                               is downloaded
#   scripts/kafka.sh versions                   print the versions that tests/compat runs on, the default last
#
# V is a version of Apache Kafka, 3.0 or newer (before 3.3 KRaft is a preview: one node, no SCRAM); a minor version such
# as 3.9 selects its newest patch release among those that `versions` prints, and others need KAFKALITE_UNKNOWN_JARS=yes.
# KAFKALITE_KAFKA_VERSION is the default of --version. start prints `bootstrap.servers=…` when
# every node accepts requests. Node i listens on P+i-1 (--port 0: on free ports), and for every --listener on PORT+i-1,
# where it advertises FRONT+i-1, the ports of a proxy, if FRONT is given; the NAME of a listener is its protocol: SSL,
# SASL_PLAINTEXT or SASL_SSL. With --controllers node i's controller listens on PORT+i-1, and the nodes reach it at
# FRONT+i-1, the ports of a proxy. DIR (default .work/kafka/cluster) contains
# data and logs, and a later start reuses them. Every property=value is added to each node's server.properties. The jars
# are downloaded once, into .work/kafka/libs (libs-V for versions other than the default); KAFKALITE_KAFKA_LIBS names a
# folder that already contains them. Each jar must have its checksum in scripts/jars.sha256; versions that `versions` does
# not print need KAFKALITE_UNKNOWN_JARS=yes. KAFKALITE_KAFKA_HEAP is the heap size of one node (default 1g), KAFKA_OPTS
# are additional Java options for nodes and tools.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

READY_TIMEOUT_S=180
STOP_TIMEOUT_S=30

refuse() {
    usage >&2
    exit 2
}

# Sets up the environment and Java; not called for stop and status, which need neither.
prepare() {
    local version
    # A separate statement, because a failure within an argument would not end the script.
    version=$(full_version "$VERSION")
    # shellcheck disable=SC2119 # no extras are wanted here
    ensure_venv
    ensure_java
    if [ -n "${KAFKALITE_KAFKA_LIBS:-}" ]; then
        LIBS=$KAFKALITE_KAFKA_LIBS
        ls "$LIBS"/kafka_2.13-*.jar >/dev/null 2>&1 || die "KAFKALITE_KAFKA_LIBS=$LIBS contains no jars of Kafka."
    else
        fetch_version "$version"
    fi
    CLASSES="$WORK/kafka/classes-$version.jsa"
    # A JVM ignores an archive that was created with other jars or another Java, and would print a message to stdout.
    [ ! -f "$CLASSES" ] || ARCHIVED=("-XX:SharedArchiveFile=$CLASSES" -Xlog:disable)
}

# full_version V: the version as X.Y.Z.
full_version() {
    local known
    if [[ $1 =~ ^(3\.[0-9]+|[4-9]\.[0-9]+)(\.[0-9]+)?$ ]]; then
        [ -z "${BASH_REMATCH[2]}" ] || { echo "$1" && return; }
        for known in $VERSIONS; do
            [ "${known%.*}" != "$1" ] || { echo "$known" && return; }
        done
    fi
    die "--version needs a version of Kafka from 3.0 on, such as 3.9.2, or the minor version of one of $VERSIONS; got $1."
}

fetch_version() { # X.Y.Z
    local ivy_file="$ROOT/scripts/kafka-ivy.xml" own
    if [ "$1" = "$DEFAULT_VERSION" ]; then
        LIBS="$WORK/kafka/libs"
    else
        LIBS="$WORK/kafka/libs-$1"
        own="$WORK/kafka/kafka-$1-ivy.xml"
        mkdir -p "$WORK/kafka"
        # Written to a temporary path and moved, because several processes may do this concurrently.
        sed "s/rev=\"$DEFAULT_VERSION\"/rev=\"$1\"/" "$ivy_file" >"$own.$$" && mv "$own.$$" "$own"
        ivy_file=$own
    fi
    fetch_jars "$ivy_file" "$LIBS"
}

# class_path: Kafka's jars. Before 4.0 they contain their own logger, and the first logger in the path is used.
class_path() {
    local simple
    simple=$(ls "$LIBS"/slf4j-simple-*.jar 2>/dev/null | head -n 1)
    echo "${simple:+$simple:}$LIBS/*"
}

# class_of NAME: the name of a tool's class in this version; many were moved between 3.3 and 4.0.
class_of() {
    "$PYTHON_BIN" -P - "$LIBS" "$1" <<'PYTHON'
import pathlib, sys, zipfile
libs, name = pathlib.Path(sys.argv[1]), sys.argv[2]
simple = name.rpartition(".")[2]
known = {entry for jar in libs.glob("kafka*.jar") for entry in zipfile.ZipFile(jar).namelist()}
found = (each for each in (name, f"kafka.tools.{simple}", f"kafka.admin.{simple}") if f"{each.replace('.', '/')}.class" in known)
print(next(found, name))
PYTHON
}

# archive_classes: create the archive by starting and stopping a node. The archive only makes later starts faster.
archive_classes() {
    [ ! -f "$CLASSES" ] || return 0
    say "archiving the classes of Kafka $(full_version "$VERSION") (once) …"
    local own="$WORK/kafka/archiving.$$"
    KAFKA_OPTS="-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit=$own.jsa -Xlog:disable" \
        "$0" start --version "$VERSION" --port 0 --dir "$own" >/dev/null 2>&1 &&
        "$0" stop --dir "$own" && mv "$own.jsa" "$CLASSES" || true
    rm -rf "$own" "$own.jsa"
}

# kafka_java LEVEL ARGUMENT…: run a class with Kafka's jars; LEVEL is the minimum level that is logged to stderr.
kafka_java() {
    local level=$1
    shift
    # shellcheck disable=SC2086 # a list of options
    java ${ARCHIVED[@]+"${ARCHIVED[@]}"} ${KAFKA_OPTS:-} -Djava.awt.headless=true -Dorg.slf4j.simpleLogger.defaultLogLevel="$level" \
        -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
        -cp "$(class_path)${SOURCES:+:$SOURCES}" "$@"
}

fetch_compiler() { fetch_jars "$ROOT/scripts/java-compiler-ivy.xml" "$WORK/kafka/compiler"; }

# compile DIR: the Java sources in DIR; sets SOURCES to the folder with their classes, which is kept.
compile() {
    local own="$WORK/kafka/compiling.$$" version
    version=$(full_version "$VERSION")
    SOURCES="$WORK/kafka/sources-$(cat "$1"/*.java | cksum | tr ' ' '-')-$version"
    [ ! -d "$SOURCES" ] || return 0
    fetch_compiler
    # Moved when they are complete, because several processes may do this concurrently.
    java -XX:TieredStopAtLevel=1 -cp "$WORK/kafka/compiler/*" org.eclipse.jdt.internal.compiler.batch.Main \
        -17 -encoding UTF-8 -nowarn -proc:none -cp "$(printf '%s:' "$LIBS"/*.jar)" -d "$own" "$1" >&2 ||
        die "the Java sources in $1 could not be compiled."
    if [ -d "$SOURCES" ]; then rm -rf "$own"; else mv "$own" "$SOURCES"; fi
}

# A pid may have been reused by another process, so the start time is compared. Small images have no ps, macOS has no
# /proc.
started_at() {
    if [ -d /proc/self ]; then
        sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
    else
        ps -o lstart= -p "$1" 2>/dev/null
    fi
}

# is_ours PID_FILE: whether the process recorded in this file is still alive.
is_ours() {
    local pid started
    { read -r pid && read -r started; } 2>/dev/null <"$1" || return 1
    [ -n "$started" ] && [ "$(started_at "$pid")" = "$started" ]
}

# free_ports COUNT [TAKEN …]: free ports other than TAKEN. They are below the system's ephemeral ports (from 32768 or 49152
# on), because any client of this machine could take one of those before its node starts, and below those that tests
# choose (tests/support/ports.py).
free_ports() {
    "$PYTHON_BIN" -P -c '
import random, socket, sys
held, taken = {}, set(map(int, sys.argv[2:]))
while len(held) < int(sys.argv[1]):
    port = random.randrange(15000, 24000)
    if port in taken:
        continue
    try:
        held[port] = held.get(port) or socket.create_server(("127.0.0.1", port))
    except OSError:
        continue
print(*held)' "$@"
}

require_free_ports() { # FIRST COUNT
    "$PYTHON_BIN" -P -c '
import socket, sys
for port in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except (OSError, OverflowError) as failure:
        sys.exit(f"error: port {port} cannot be used ({failure}); --port 0 takes free ones.")' "$@"
}

write_properties() { # NODE NODES PORT CONTROLLER_PORT VOTERS LISTENERS ADVERTISED PROPERTY…
    local node=$1 nodes=$2 port=$3 controller_port=$4 voters=$5 replicas min_isr listener name own front
    local further="" advertised=$7 protocols=""
    for listener in $6; do
        IFS=: read -r name own front <<<"$listener"
        further="$further,$name://127.0.0.1:$((own + node - 1))"
        advertised="$advertised,$name://127.0.0.1:$((${front:-$own} + node - 1))"
        protocols="$protocols,$name:$name"
    done
    shift 7
    replicas=$((nodes < 3 ? nodes : 3))
    min_isr=$((nodes < 3 ? 1 : 2))
    cat <<PROPERTIES
process.roles=broker,controller
node.id=$node
controller.quorum.voters=$voters
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port$further,CONTROLLER://127.0.0.1:$controller_port
advertised.listeners=PLAINTEXT://127.0.0.1:$port$advertised
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT$protocols
log.dirs=$DIR/node-$node/data
default.replication.factor=$replicas
min.insync.replicas=$min_isr
offsets.topic.replication.factor=$replicas
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=$min_isr
share.coordinator.state.topic.replication.factor=$replicas
share.coordinator.state.topic.min.isr=$min_isr
group.initial.rebalance.delay.ms=0
group.consumer.assignment.interval.ms=0
group.consumer.assignor.offload.enable=false
PROPERTIES
    [ $# = 0 ] || printf '%s\n' "$@"
}

show_failure() {
    local log
    for log in "$DIR"/node-*/server.log; do
        say "--- last lines of $log"
        tail -n 20 "$log" >&2
    done
}

start() {
    local nodes=1 port=9092 listeners="" properties=() node ports all controllers=() voters="" bootstrap="" pids=""
    local cluster_id
    local listener own taken=() controller_front="" advertised
    while [ $# -gt 0 ]; do
        case "$1" in
            --version) VERSION=$2 && shift 2 ;;
            --nodes) nodes=$2 && shift 2 ;;
            --port) port=$2 && shift 2 ;;
            --dir) DIR=$2 && shift 2 ;;
            --listener) listeners="$listeners $2" && shift 2 ;;
            --controllers)
                [[ $2 =~ ^[0-9]+:[0-9]+$ ]] || refuse
                controllers=("${2%:*}") controller_front=${2#*:} && shift 2
                ;;
            *=*) properties+=("$1") && shift ;;
            *) refuse ;;
        esac
    done
    [ "$nodes" -ge 1 ] 2>/dev/null || die "--nodes must be a number of 1 or more, got $nodes."
    prepare
    # The properties may contain passwords, and the folder contains the data.
    umask 077
    mkdir -p "$DIR"
    DIR=$(cd "$DIR" && pwd)
    echo "$VERSION" >"$DIR/version"
    for node in "$DIR"/node-*/pid; do
        ! is_ours "$node" || die "Kafka is already running in $DIR; to stop it: scripts/kafka.sh stop --dir $DIR"
    done
    if [ "$port" != 0 ]; then require_free_ports "$port" "$nodes"; fi
    for ((node = 0; node < nodes; node++)); do
        taken+=($((port + node)))
        for listener in $listeners; do
            IFS=: read -r _ own _ <<<"$listener"
            taken+=($((own + node)))
        done
    done
    read -r -a all <<<"$(free_ports $((2 * nodes)) "${taken[@]}")"
    ports=("${all[@]:0:nodes}")
    if [ -z "$controller_front" ]; then controllers=("${all[@]:nodes}"); fi
    for ((node = 1; node <= nodes; node++)); do
        if [ "$port" != 0 ]; then ports[node - 1]=$((port + node - 1)); fi
        if [ -n "$controller_front" ]; then controllers[node - 1]=$((controllers[0] + node - 1)); fi
        own=${controller_front:+$((controller_front + node - 1))}
        voters="${voters:+$voters,}$node@127.0.0.1:${own:-${controllers[node - 1]}}"
        bootstrap="${bootstrap:+$bootstrap,}127.0.0.1:${ports[node - 1]}"
    done
    if [ ! -s "$DIR/cluster.id" ]; then
        "$PYTHON_BIN" -P -c 'import base64, uuid
print(base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A", 1))' >"$DIR/cluster.id"
    fi
    cluster_id=$(cat "$DIR/cluster.id")
    for ((node = 1; node <= nodes; node++)); do
        mkdir -p "$DIR/node-$node"
        advertised=""
        # From 3.9 on a leader tells its own address (KIP-853); before, a broker must not advertise its controller.
        case "$controller_front,$(full_version "$VERSION")" in
            ,* | *,3.[0-8].*) ;;
            *) advertised=",CONTROLLER://127.0.0.1:$((controller_front + node - 1))" ;;
        esac
        write_properties "$node" "$nodes" "${ports[node - 1]}" "${controllers[node - 1]}" "$voters" "$listeners" \
            "$advertised" ${properties[@]+"${properties[@]}"} >"$DIR/node-$node/server.properties"
        kafka_java warn kafka.tools.StorageTool format --ignore-formatted -t "$cluster_id" \
            -c "$DIR/node-$node/server.properties" >>"$DIR/node-$node/server.log" 2>&1 </dev/null || {
            show_failure
            die "could not format the data folder of node $node."
        }
    done
    for ((node = 1; node <= nodes; node++)); do
        # stdin, stdout and stderr are redirected: a caller that reads the output must not wait for the end of the
        # brokers.
        kafka_java_in_background "$node"
        pids="$pids $BACKGROUND_PID"
    done
    # shellcheck disable=SC2086 # lists of words
    if ! "$PYTHON_BIN" "$ROOT/scripts/kafka_ready.py" --timeout "$READY_TIMEOUT_S" \
        --cluster-id "$cluster_id" --pids $pids -- ${bootstrap//,/ }; then
        show_failure
        stop_nodes
        die "Kafka did not start."
    fi
    printf 'bootstrap.servers=%s\n' "$bootstrap" | tee "$DIR/bootstrap"
}

kafka_java_in_background() { # NODE
    local home="$DIR/node-$1"
    # shellcheck disable=SC2086 # a list of options
    nohup java ${ARCHIVED[@]+"${ARCHIVED[@]}"} "-Xmx${KAFKALITE_KAFKA_HEAP:-1g}" ${KAFKA_OPTS:-} -Djava.awt.headless=true \
        -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
        -cp "$(class_path)" kafka.Kafka "$home/server.properties" </dev/null >>"$home/server.log" 2>&1 &
    BACKGROUND_PID=$!
    printf '%s\n%s\n' "$BACKGROUND_PID" "$(started_at "$BACKGROUND_PID")" >"$home/pid"
}

# stop_nodes [SIGNAL [PATTERN]]: stop the nodes whose folder name matches; nodes that do not end in time are killed.
stop_nodes() {
    local signal=${1:-TERM} nodes=${2:-node-*} file pid deadline=$((SECONDS + STOP_TIMEOUT_S))
    # shellcheck disable=SC2231 # a pattern
    for file in "$DIR"/$nodes/pid; do
        if is_ours "$file"; then kill "-$signal" "$(head -n 1 "$file")" 2>/dev/null || true; fi
    done
    # shellcheck disable=SC2231 # a pattern
    for file in "$DIR"/$nodes/pid; do
        [ -e "$file" ] || continue
        pid=$(head -n 1 "$file")
        while is_ours "$file" && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.1; done
        # A node that waits for a quorum never ends if the other nodes have already stopped.
        if is_ours "$file"; then kill -KILL "$pid" 2>/dev/null || true; fi
        rm -f "$file"
    done
}

status() {
    local file node state=0 found=0
    for file in "$DIR"/node-*/server.properties; do
        [ -e "$file" ] || continue
        found=1
        node=$(dirname "$file")
        if is_ours "$node/pid"; then
            echo "$(basename "$node") runs as process $(head -n 1 "$node/pid")"
        else
            echo "$(basename "$node") is stopped"
            state=3
        fi
    done
    [ "$found" = 1 ] || { echo "no Kafka in $DIR" && exit 3; }
    [ "$state" != 0 ] || cat "$DIR/bootstrap"
    exit "$state"
}

# one_node COMMAND N [--dir DIR]
one_node() {
    local command=$1 node=${2:-}
    [ -n "$node" ] || refuse
    shift 2
    only_dir "$@"
    [ -f "$DIR/node-$node/server.properties" ] || die "node $node does not exist in $DIR."
    case "$command" in
        stop-node) stop_nodes TERM "node-$node" ;;
        kill-node) stop_nodes KILL "node-$node" ;;
        start-node)
            ! is_ours "$DIR/node-$node/pid" || die "node $node is already running."
            VERSION=$(cat "$DIR/version")
            prepare
            umask 077
            kafka_java_in_background "$node"
            ;;
    esac
}

# only_version [--version V …]: parse the option, and set HAS_VERSION to 1 if it was given.
only_version() {
    HAS_VERSION=0
    if [ "${1:-}" = --version ]; then
        [ $# -ge 2 ] || refuse
        VERSION=$2 HAS_VERSION=1
    fi
}

only_dir() {
    if [ $# = 2 ] && [ "$1" = --dir ]; then DIR=$2; elif [ $# != 0 ]; then refuse; fi
}

# Oldest first, each with its newest patch release on Maven Central.
DEFAULT_VERSION=$(sed -n 's/.*name="kafka_2.13" rev="\([^"]*\)".*/\1/p' "$ROOT/scripts/kafka-ivy.xml")
VERSIONS="3.3.2 3.5.2 3.6.2 3.9.2 4.0.2 4.1.2 $DEFAULT_VERSION"
VERSION=${KAFKALITE_KAFKA_VERSION:-$DEFAULT_VERSION}
DIR="$WORK/kafka/cluster"
ARCHIVED=()
command=${1:-}
[ $# = 0 ] || shift
case "$command" in
    start) start "$@" ;;
    stop) only_dir "$@" && stop_nodes ;;
    stop-node | kill-node | start-node) one_node "$command" "$@" ;;
    status) only_dir "$@" && status ;;
    run)
        only_version "$@"
        shift $((2 * HAS_VERSION))
        [ $# -ge 1 ] || refuse
        prepare
        class=$(class_of "$1")
        shift
        kafka_java warn "$class" "$@"
        ;;
    run-sources)
        only_version "$@"
        shift $((2 * HAS_VERSION))
        [ $# -ge 2 ] || refuse
        prepare
        compile "$1"
        class=$2
        shift 2
        kafka_java error "$class" "$@"
        ;;
    fetch)
        only_version "$@"
        [ $# = $((2 * HAS_VERSION)) ] || refuse
        prepare
        fetch_compiler
        archive_classes
        ;;
    versions) echo "$VERSIONS" ;;
    -h | --help) usage ;;
    *) refuse ;;
esac
