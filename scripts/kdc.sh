#!/usr/bin/env bash
# A Kerberos KDC (MIT) for tests, on the loopback interface.
#
#   scripts/kdc.sh start --dir DIR [--lifetime TIME] PRINCIPAL …   create the realm EXAMPLE.TEST and start its KDC
#   scripts/kdc.sh stop --dir DIR
#
# start writes DIR/krb5.conf (for KRB5_CONFIG, and -Djava.security.krb5.conf) and, for each PRINCIPAL such as alice or
# kafka/127.0.0.1, its keytab DIR/NAME.keytab, where NAME is the principal with - for /. Tickets live TIME, such as 10s
# (default: 10h). It needs krb5kdc, kdb5_util and kadmin.local (Debian: krb5-kdc, krb5-admin-server),
# and exits with 3 where they are missing.
set -euo pipefail

REALM=EXAMPLE.TEST
PATH="$PATH:/usr/sbin:/usr/local/sbin"

die() {
    printf 'error: %s\n' "$1" >&2
    exit "${2:-1}"
}

configure() { # PORT LIFETIME
    cat >"$DIR/krb5.conf" <<CONFIGURATION
[libdefaults]
    default_realm = $REALM
    ticket_lifetime = $2
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    $REALM = {
        kdc = 127.0.0.1:$1
    }
CONFIGURATION
    cat >"$DIR/kdc.conf" <<CONFIGURATION
[realms]
    $REALM = {
        database_name = $DIR/principal
        key_stash_file = $DIR/stash
        max_life = $2
        kdc_listen = 127.0.0.1:$1
        kdc_tcp_listen = 127.0.0.1:$1
    }
[logging]
    kdc = FILE:$DIR/kdc.log
CONFIGURATION
}

start() {
    local lifetime=10h port principal waited=0
    while [ $# -gt 0 ]; do
        case "$1" in
            --lifetime) lifetime=$2 && shift 2 ;;
            *) break ;;
        esac
    done
    for port in krb5kdc kdb5_util kadmin.local; do
        command -v "$port" >/dev/null 2>&1 || die "$port is missing; install krb5-kdc and krb5-admin-server" 3
    done
    umask 077
    mkdir -p "$DIR"
    port=$(python3 -I -c 'import socket; held = socket.create_server(("127.0.0.1", 0)); print(held.getsockname()[1])')
    configure "$port" "$lifetime"
    export KRB5_CONFIG="$DIR/krb5.conf" KRB5_KDC_PROFILE="$DIR/kdc.conf"
    kdb5_util create -r "$REALM" -s -P "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$DIR/create.log" 2>&1
    for principal in "$@"; do
        kadmin.local -q "addprinc -randkey $principal" >>"$DIR/create.log" 2>&1
        kadmin.local -q "ktadd -k $DIR/${principal//\//-}.keytab $principal" >>"$DIR/create.log" 2>&1
    done
    krb5kdc -n -P "$DIR/pid" >"$DIR/kdc.out" 2>&1 </dev/null &
    until grep -q 'commencing operation' "$DIR/kdc.log" 2>/dev/null; do
        [ "$waited" -lt 100 ] || die "the KDC did not start; see $DIR/kdc.log"
        waited=$((waited + 1))
        sleep 0.1
    done
}

stop() {
    [ ! -s "$DIR/pid" ] || kill "$(cat "$DIR/pid")" 2>/dev/null || true
    rm -f "$DIR/pid"
}

[ $# -ge 3 ] && [ "$2" = --dir ] || die "usage: scripts/kdc.sh start|stop --dir DIR …"
command=$1 DIR=$3
shift 3
case "$command" in
    start) start "$@" ;;
    stop) stop ;;
    *) die "unknown command $command" ;;
esac
