"""Record the decisions of Apache Kafka's StandardAuthorizer on requests against random ACLs.

    python tests/golden/make_acl_decisions.py --jars DIRECTORY

DIRECTORY holds the jars of a Kafka distribution; its classes are driven through py4j. Names, prefixes, principals and
hosts are few, so that many ACLs apply to each request and contradict each other.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "acl_decisions.json"
SETS = 60
QUESTIONS = 40
NAMES = ("a", "ab", "abc", "abd", "b", "hardcode", "*")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:CN=c, O=d")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
CLIENTS = (("User:alice", "10.0.0.1"), ("User:bob", "::1"), ("User:CN=c, O=d", "10.0.0.2"), ("User:root", "10.0.0.1"))
#: Operations of topics, and the operations that ACLs may have in addition.
OPERATIONS = (3, 4, 5, 6, 7, 8, 10, 11)
ALL = 2
TYPES = (2, 3)
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
SUPER_USER = "User:root"

Acl = list[Any]


def random_acls(drawn: random.Random) -> list[Acl]:
    """principal, operation, resource type, name, pattern type, permission type, host"""
    return [
        [
            drawn.choice(PRINCIPALS),
            drawn.choice((*OPERATIONS, ALL, ALL)),
            drawn.choice(TYPES),
            drawn.choice(NAMES),
            drawn.choice((LITERAL, PREFIXED)),
            drawn.choice((DENY, ALLOW, ALLOW)),
            drawn.choice(HOSTS),
        ]
        for _ in range(drawn.choice((0, 1, 2, 4, 8, 16)))
    ]


class StandardAuthorizer:
    """Kafka's own authorizer, with *acls*."""

    def __init__(self, gateway: Any, acls: list[Acl], *, allow_everyone: bool) -> None:
        self._gateway, jvm = gateway, gateway.jvm
        self._jvm = jvm
        self._common = jvm.org.apache.kafka.common
        self._authorizer = jvm.org.apache.kafka.metadata.authorizer.StandardAuthorizer()
        options = {
            "super.users": SUPER_USER,
            "allow.everyone.if.no.acl.found": str(allow_everyone).lower(),
            "node.id": "1",
        }
        table = jvm.java.util.HashMap()
        for name, value in options.items():
            table.put(name, value)
        self._authorizer.configure(table)
        metrics = self._common.metrics
        self._authorizer.withPluginMetrics(
            metrics.internals.PluginMetricsImpl(metrics.Metrics(), jvm.java.util.LinkedHashMap())
        )
        for principal, operation, resource_type, name, pattern_type, permission_type, host in acls:
            acl = jvm.org.apache.kafka.metadata.authorizer.StandardAcl(
                self._common.resource.ResourceType.fromCode(resource_type),
                name,
                self._common.resource.PatternType.fromCode(pattern_type),
                principal,
                host,
                self._common.acl.AclOperation.fromCode(operation),
                self._common.acl.AclPermissionType.fromCode(permission_type),
            )
            self._authorizer.addAcl(self._common.Uuid.randomUuid(), acl)
        self._authorizer.completeInitialLoad()

    def _client(self, principal: str, host: str) -> Any:
        common, jvm = self._common, self._jvm
        kind, _, name = principal.partition(":")
        header = common.requests.RequestHeader(common.protocol.ApiKeys.PRODUCE, 9, "client", 1)
        return common.requests.RequestContext(
            header,
            "connection",
            jvm.java.net.InetAddress.getByName(host),
            common.security.auth.KafkaPrincipal(kind, name),
            common.network.ListenerName("PLAINTEXT"),
            common.security.auth.SecurityProtocol.PLAINTEXT,
            common.network.ClientInformation.EMPTY,
            False,
        )

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        jvm, common = self._jvm, self._common
        pattern = common.resource.ResourcePattern(
            common.resource.ResourceType.fromCode(resource_type), name, common.resource.PatternType.LITERAL
        )
        action = jvm.org.apache.kafka.server.authorizer.Action(
            common.acl.AclOperation.fromCode(operation), pattern, 1, False, False
        )
        asked = jvm.java.util.List.of(action)
        return str(self._authorizer.authorize(self._client(principal, host), asked).get(0)) == "ALLOWED"

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        common = self._common
        # py4j does not find the default methods of interfaces.
        authorizer = self._jvm.java.lang.Class.forName("org.apache.kafka.server.authorizer.Authorizer")
        method = next(each for each in authorizer.getMethods() if each.getName() == "authorizeByResourceType")
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, 3)
        arguments[0] = self._client(principal, host)
        arguments[1] = common.acl.AclOperation.fromCode(operation)
        arguments[2] = common.resource.ResourceType.fromCode(resource_type)
        return str(method.invoke(self._authorizer, arguments)) == "ALLOWED"


def make_decisions(gateway: Any) -> list[dict[str, Any]]:
    drawn = random.Random(16)
    made = []
    for number in range(SETS):
        acls, allow_everyone = random_acls(drawn), number % 3 == 0
        authorizer = StandardAuthorizer(gateway, acls, allow_everyone=allow_everyone)
        questions = []
        for _ in range(QUESTIONS):
            client = drawn.choice(CLIENTS)
            operation, resource_type = drawn.choice(OPERATIONS), drawn.choice(TYPES)
            name = drawn.choice([each for each in NAMES if each != "*"])
            allowed = authorizer.allows(*client, operation, resource_type, name)
            questions.append([*client, operation, resource_type, name, allowed])
        # For a type of resource, Kafka authorizes only WRITE on topics.
        questions += [[*client, 4, 2, None, authorizer.allows_any(*client, 4, 2)] for client in CLIENTS]
        made.append({"acls": acls, "allow_everyone": allow_everyone, "questions": questions})
    return made


def main() -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True, help="the directory with the jars of Apache Kafka")
    jars: Path = parser.parse_args().jars
    classpath = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    port = launch_gateway(classpath=classpath, die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    jar = next(jars.glob("kafka-metadata-*.jar"))
    content = {
        "made_by": f"StandardAuthorizer of Apache Kafka, {jar.name}",
        "command": f"python tests/golden/{Path(__file__).name} --jars DIRECTORY",
        "super_user": SUPER_USER,
        "sets": make_decisions(gateway),
    }
    lines = json.dumps(content, separators=(",", ":")).replace('{"acls"', '\n{"acls"')
    TARGET.write_text(lines + "\n")


if __name__ == "__main__":
    main()
