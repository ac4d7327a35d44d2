"""The check of a target from one place: the list of its steps, and their findings.

Called on the main thread of the command line, on Spark's driver, and in a task on an executor. It opens connections,
closes them at its end, and writes nothing.
"""

from __future__ import annotations

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.preflight.cluster_steps import INTERNAL_TOPICS, ExactlyOnceSteps, versions_step
from kafka_sink.preflight.connection_steps import ConnectionSteps
from kafka_sink.preflight.findings import Finding, Step, run_steps
from kafka_sink.preflight.registry_steps import RegistrySteps
from kafka_sink.preflight.target import CheckTarget
from kafka_sink.preflight.topic_steps import READ, WRITE, TopicSteps


def check_connections(target: CheckTarget, place: str, *, clock: Clock = SYSTEM_CLOCK) -> list[Finding]:
    """The findings that depend on the machine: its files, names, and the brokers' addresses."""
    connection = ConnectionSteps(target, (), clock)
    try:
        return list(run_steps(connection.steps(), place))
    finally:
        connection.close()


def check_all(target: CheckTarget, place: str, *, clock: Clock = SYSTEM_CLOCK) -> list[Finding]:
    """The findings of :func:`check_connections`, and those about the cluster, its topics and the schema registry."""
    progress = [] if target.exactly_once is None else [target.exactly_once.progress_topic]
    internal = [] if target.exactly_once is None else list(INTERNAL_TOPICS.values())
    topics = list(dict.fromkeys([*target.topics, *progress, *internal]))
    connection = ConnectionSteps(target, topics, clock)
    try:
        steps = [*connection.steps(), *_cluster_steps(target, connection)]
        if target.registry is not None:
            steps += RegistrySteps(target.registry, clock).steps()
        return list(run_steps(steps, place))
    finally:
        connection.close()


def _cluster_steps(target: CheckTarget, connection: ConnectionSteps) -> list[Step]:
    sink = target.exactly_once
    steps = [versions_step(connection, exactly_once=sink is not None)]
    progress = None if sink is None else sink.progress_topic
    for topic in dict.fromkeys(target.topics):
        needed = (WRITE, READ) if topic == progress else (WRITE,)
        new = next((each for each in target.new_topics if each.name == topic), None)
        steps += TopicSteps(topic, connection, needed, may_be_created=topic != progress, new_topic=new).steps()
    if progress is not None and progress not in target.topics:
        steps += TopicSteps(progress, connection, (READ,), may_be_created=False).steps()
    if sink is not None:
        steps += ExactlyOnceSteps(sink, connection).steps()
    return steps
