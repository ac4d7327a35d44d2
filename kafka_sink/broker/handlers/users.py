"""Users: their ACLs (KIP-11, KIP-140, KIP-290), their SCRAM credentials (KIP-554) and their quotas (KIP-546).

Any node alters and describes them, because nodes share the cluster's state.

Source: apache/kafka ``CreateAclsRequest``, ``DescribeAclsRequest``, ``DeleteAclsRequest``, ``AclControlManager``;
``ScramImage``, ``ScramControlManager``; ``ClientQuotaControlManager`` for the validation of entities and quotas,
``ClientQuotasImage`` for that of filters.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from kafka_sink.broker.handlers.context import (
    ApiRequest,
    BrokerContext,
    api_handler,
    once,
    storage_errors,
    stored_together,
)
from kafka_sink.broker.network.quotas import CLIENT, CONSUMER_RATE, PRODUCER_RATE, USER
from kafka_sink.common.acl import AclBinding, AclOperation, ResourceType, validate
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import QuotaEntity
from kafka_sink.common.sasl_mechanisms import MIN_ITERATIONS, SCRAM_MECHANISMS, ScramCredential
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import acls as m
from kafka_sink.protocol.messages import users as quotas
from kafka_sink.protocol.messages import users as scram
from kafka_sink.protocol.messages.acls import binding_of, deletion_of, filter_of


def is_readable(acl: m.AclCreation | m.AclFilter) -> bool:
    """Whether no code is the one for "unknown". Kafka reads no request with this code, and closes the connection."""
    if isinstance(acl, m.AclCreation):
        types = acl.resource_type, acl.resource_pattern_type
    else:
        types = acl.resource_type_filter, acl.pattern_type_filter
    return 0 not in (*types, acl.operation, acl.permission_type)


def without_authorizer() -> ApiError:
    """The error of a broker that enforces no ACLs."""
    return ApiError(
        "no authorizer is configured: start the broker with --authorizer, or set authorizer.class.name",
        ErrorCode.SECURITY_DISABLED,
    )


@api_handler(ApiKey.CREATE_ACLS, "1-3")
def create_acls(request: ApiRequest[m.CreateAclsRequest]) -> None:
    """CreateAcls (key 30): adds ACLs (KIP-11, KIP-290)."""
    if not all(map(is_readable, request.body.creations)):
        request.close_connection()
        return
    request.require(AclOperation.ALTER, ResourceType.CLUSTER)
    acls = [binding_of(creation, creation) for creation in request.body.creations]
    refusals = [_acl_problem(request.broker, acl) for acl in acls]
    try:
        with storage_errors("could not store the ACLs"):
            request.broker.cluster.create_acls(
                [acl for acl, error in zip(acls, refusals, strict=True) if error is None]
            )
    except ApiError as error:
        refusals = [refusal or error for refusal in refusals]
    request.respond(
        m.CreateAclsResponse(
            results=[
                m.AclCreationResult(ErrorCode.NONE, None)
                if error is None
                else m.AclCreationResult(error.code, str(error))
                for error in refusals
            ]
        )
    )


def _acl_problem(context: BrokerContext, acl: AclBinding) -> ApiError | None:
    if not context.authorizer.is_enabled:
        return without_authorizer()
    try:
        validate(acl)
    except ApiError as error:
        return error
    return None


@api_handler(ApiKey.DESCRIBE_ACLS, "1-3")
def describe_acls(request: ApiRequest[m.DescribeAclsRequest]) -> None:
    """DescribeAcls (key 29): the ACLs that match a filter, by resource pattern (KIP-140, KIP-290)."""
    if not is_readable(request.body):
        request.close_connection()
        return
    request.require(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if not request.broker.authorizer.is_enabled:
        raise without_authorizer()
    wanted = filter_of(request.body)
    resources: dict[tuple[int, str, int], m.DescribeAclsResource] = {}
    for acl in filter(wanted.matches, request.broker.cluster.image.acls.acls):
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = resources.setdefault(key, m.DescribeAclsResource(*key))
        resource.acls.append(m.AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
    request.respond(
        m.DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values()))
    )


@api_handler(ApiKey.DELETE_ACLS, "1-3")
def delete_acls(request: ApiRequest[m.DeleteAclsRequest]) -> None:
    """DeleteAcls (key 31): deletes the ACLs that match filters (KIP-140, KIP-290)."""
    if not all(map(is_readable, request.body.filters)):
        request.close_connection()
        return
    request.require(AclOperation.ALTER, ResourceType.CLUSTER)

    def delete(acl_filter: m.DeleteAclsFilter) -> m.DeleteAclsFilterResult:
        wanted = filter_of(acl_filter)
        if not request.broker.authorizer.is_enabled:
            raise without_authorizer()
        if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type):
            raise ApiError(f"{wanted} has an unknown value", ErrorCode.INVALID_REQUEST)
        deleted = request.broker.cluster.delete_acls(wanted)
        return m.DeleteAclsFilterResult(ErrorCode.NONE, None, list(map(deletion_of, deleted)))

    def refused(acl_filter: m.DeleteAclsFilter, error: ApiError) -> m.DeleteAclsFilterResult:
        return m.DeleteAclsFilterResult(error.code, str(error), [])

    results = stored_together(request.broker, request.body.filters, delete, refused)
    request.respond(m.DeleteAclsResponse(filter_results=results))


_Change: TypeAlias = scram.ScramCredentialDeletion | scram.ScramCredentialUpsertion

#: Kafka's ScramControlManager.MAX_ITERATIONS.
_MAX_ITERATIONS: Final = 16_384


@api_handler(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0")
def alter_user_scram_credentials(request: ApiRequest[scram.AlterUserScramCredentialsRequest]) -> None:
    """AlterUserScramCredentials (key 51): creates, changes and deletes SCRAM users while the cluster runs; a failure
    does not affect the others.

    Only keys are stored, from which a password cannot be derived. Existing connections of a user stay open until
    their reauthentication is due.
    """
    changes: list[_Change] = [*request.body.deletions, *request.body.upsertions]
    times = Counter(change.name for change in changes)

    def alter(change: _Change) -> scram.AlterUserScramCredentialsResult:
        request.require(AclOperation.ALTER, ResourceType.CLUSTER)
        key = _mechanism(change), change.name
        credential = _credential(key[0], change) if isinstance(change, scram.ScramCredentialUpsertion) else None
        if credential is None and key in request.broker.users.configured:
            text = f"user {change.name!r} of {key[0]} is one of the broker's configuration: remove it there"
            raise ApiError(text, ErrorCode.UNACCEPTABLE_CREDENTIAL)
        if credential is None and key not in request.broker.cluster.image.scram_users:
            raise ApiError(f"user {change.name!r} has no credential for {key[0]}", ErrorCode.RESOURCE_NOT_FOUND)
        if times[change.name] > 1:
            text = f"the credential of user {change.name!r} cannot be altered twice in one request"
            raise ApiError(text, ErrorCode.DUPLICATE_RESOURCE)
        request.broker.cluster.alter_scram_users({key: credential})
        return scram.AlterUserScramCredentialsResult(change.name, ErrorCode.NONE, None)

    def refused(change: _Change, error: ApiError) -> scram.AlterUserScramCredentialsResult:
        return scram.AlterUserScramCredentialsResult(change.name, error.code, str(error))

    results = stored_together(request.broker, once(changes, lambda change: change.name), alter, refused)
    request.respond(scram.AlterUserScramCredentialsResponse(results=results))


def _mechanism(change: _Change) -> str:
    if not change.name:
        raise ApiError("the name of a user must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if not 1 <= change.mechanism <= len(SCRAM_MECHANISMS):
        mechanisms = ", ".join(f"{number} ({name})" for number, name in enumerate(SCRAM_MECHANISMS, 1))
        text = f"mechanism {change.mechanism} of user {change.name!r} is unknown, expected one of {mechanisms}"
        raise ApiError(text, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    return SCRAM_MECHANISMS[change.mechanism - 1]


def _credential(mechanism: str, change: scram.ScramCredentialUpsertion) -> ScramCredential:
    if not MIN_ITERATIONS <= change.iterations <= _MAX_ITERATIONS:
        text = f"user {change.name!r}: {change.iterations} iterations, expected {MIN_ITERATIONS} to {_MAX_ITERATIONS}"
        raise ApiError(text, ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return ScramCredential.of_salted(mechanism, bytes(change.salted_password), change.iterations, bytes(change.salt))


@api_handler(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0")
def describe_user_scram_credentials(request: ApiRequest[scram.DescribeUserScramCredentialsRequest]) -> None:
    """DescribeUserScramCredentials (key 50): SCRAM users, including those of the configuration, without their keys."""
    try:
        request.require(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    except ApiError as error:
        # As in Kafka, users are not named in a refusal.
        refused = [
            scram.DescribeUserScramCredentialsResult("", error.code, str(error)) for _ in request.body.users or ()
        ]
        answer = scram.DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=str(error), results=refused
        )
        request.respond(answer)
        return
    users = {**request.broker.users.configured, **request.broker.users.stored()}
    infos: dict[str, list[scram.CredentialInfo]] = {}
    for number, mechanism in enumerate(SCRAM_MECHANISMS, 1):
        for (of, name), credential in users.items():
            if of == mechanism:
                infos.setdefault(name, []).append(scram.CredentialInfo(number, credential.iterations))

    def described(name: str, times: int) -> scram.DescribeUserScramCredentialsResult:
        if times > 1:
            text = f"user {name!r:.200} is named {times} times in one request"
            return scram.DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
        if name not in infos:
            text = f"user {name!r:.200} has no credential for SCRAM"
            return scram.DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text)
        return scram.DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, infos[name])

    counts = Counter(user.name for user in request.body.users or ()) or dict.fromkeys(infos, 1)
    results = [described(*count) for count in counts.items()]
    request.respond(scram.DescribeUserScramCredentialsResponse(error_message=None, results=results))


#: Kafka keeps these quotas in a long.
_MOST: Final = 2.0**63


@api_handler(ApiKey.ALTER_CLIENT_QUOTAS, "0-1")
def alter_client_quotas(request: ApiRequest[quotas.AlterClientQuotasRequest]) -> None:
    """AlterClientQuotas (key 49): rates of bytes for users and client ids; other quotas are refused (KIP-546)."""

    def change(entry: quotas.EntryData) -> quotas.AlteredEntry:
        request.require(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
        entity, changes = _entity(entry.entity), _changes(entry.ops)
        if not request.body.validate_only:
            request.broker.cluster.alter_quotas(entity, changes)
        named = [quotas.EntityData(*part) for part in sorted(entity, key=lambda part: part[0])]
        return quotas.AlteredEntry(ErrorCode.NONE, None, named)

    def refused(entry: quotas.EntryData, error: ApiError) -> quotas.AlteredEntry:
        return quotas.AlteredEntry(error.code, str(error), entry.entity)

    entries = stored_together(request.broker, request.body.entries, change, refused)
    request.respond(quotas.AlterClientQuotasResponse(entries=entries))


def _entity(parts: list[quotas.EntityData]) -> QuotaEntity:
    if not parts:
        raise ApiError("an entity has a user, a client id, or one of each", ErrorCode.INVALID_REQUEST)
    for part in parts:
        if part.entity_type not in (USER, CLIENT):
            text = f"quotas of entity type {part.entity_type!r} are not enforced here; expected {USER} or {CLIENT}"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)
        if part.entity_name == "":
            raise ApiError(f"the name of the {part.entity_type} is empty", ErrorCode.INVALID_REQUEST)
    # As in Kafka, the last of several names of one kind counts.
    return frozenset({part.entity_type: part.entity_name for part in parts}.items())


def _changes(ops: list[quotas.OpData]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key not in (PRODUCER_RATE, CONSUMER_RATE):
            text = f"quota {op.key!r} is not enforced here; expected {PRODUCER_RATE} or {CONSUMER_RATE}"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)
        if not op.remove and not (0 < op.value < _MOST and op.value.is_integer()):
            raise ApiError(f"{op.key} must be a whole number above 0, got {op.value}", ErrorCode.INVALID_REQUEST)
        changes[op.key] = None if op.remove else op.value
    return changes


_IP: Final = "ip"
_ENTITIES: Final = frozenset({_IP, "user", "client-id"})
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@api_handler(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1")
def describe_client_quotas(request: ApiRequest[quotas.DescribeClientQuotasRequest]) -> None:
    """DescribeClientQuotas (key 48): the quotas of users and clients (KIP-546)."""
    try:
        request.require(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        _check(request.body.components)
    except ApiError as error:
        failed = quotas.DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
        request.respond(failed)
        return
    entries = [
        quotas.DescribedEntry(
            [quotas.EntityData(kind, name) for kind, name in sorted(entity, key=lambda part: part[0])],
            [quotas.ValueData(key, value) for key, value in sorted(values.items())],
        )
        for entity, values in request.broker.cluster.image.quotas.items()
        if _is_wanted(dict(entity), request.body)
    ]
    request.respond(quotas.DescribeClientQuotasResponse(error_message=None, entries=entries))


def _is_wanted(entity: dict[str, str | None], body: quotas.DescribeClientQuotasRequest) -> bool:
    if body.strict and len(entity) != len(body.components):
        return False
    return all(
        part.entity_type in entity and (part.match_type == _ANY or entity[part.entity_type] == part.match)
        for part in body.components
    )


def _check(components: list[quotas.ComponentData]) -> None:
    kinds: set[str] = set()
    for component in components:
        if not component.entity_type:
            raise ApiError("an entity type is empty", ErrorCode.INVALID_REQUEST)
        if component.entity_type in kinds:
            raise ApiError(f"entity type {component.entity_type} appears twice", ErrorCode.INVALID_REQUEST)
        if component.entity_type not in _ENTITIES:
            raise ApiError(f"entity type {component.entity_type!r} is unknown", ErrorCode.UNSUPPORTED_VERSION)
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise ApiError(f"match type {component.match_type} is unknown", ErrorCode.INVALID_REQUEST)
        if (component.match is None) == (component.match_type == _EXACT):
            raise ApiError("exact matches need a name, and others have none", ErrorCode.INVALID_REQUEST)
        kinds.add(component.entity_type)
    if _IP in kinds and len(kinds) > 1:
        raise ApiError("addresses cannot be combined with users or clients", ErrorCode.INVALID_REQUEST)
