"""Which tests hold the promises of SECURITY.md and docs/security.md: a part of a sentence, and the tests."""

from __future__ import annotations

from typing import Final

#: Of SECURITY.md.
PAGE: Final[dict[str, tuple[str, ...]]] = {
    "a response has 512 KiB before SASL has ended": (
        "unit/broker/test_sasl_authenticators.py::test_large_responses_are_read_only_after_authentication",
    ),
    "has 4 MiB and four times the size of the record": (
        "hostile/test_attacks.py::test_items_without_bytes_are_not_counted_to_the_end",
    ),
    "4 MiB and a deadline, for any announced size": (
        "hostile/test_attacks.py::test_an_answer_is_bounded_whatever_its_chunks_say",
    ),
    "A Protobuf message has 200,000 values (10,000 on a page)": (
        "hostile/test_odd_schemas.py::test_odd_descriptors_are_refused_with_the_reason",
    ),
    "up to 256 MiB (`max.decompressed.bytes`)": (
        "unit/consumer/test_fetched_partition.py::test_a_batch_that_decompresses_to_too_much_is_refused",
    ),
    "compares a million records of a batch": (
        "unit/broker/log/test_partition_log.py::test_a_search_by_time_is_bounded",
    ),
    "reads records that take 16 MiB in memory": ("integration/test_newest.py::test_bytes_are_limited",),
    "for 5 s at most, also within a batch": ("integration/test_newest.py::test_time_is_limited",),
    "2,000 characters of a value and 20 headers of a record": (
        "unit/ui/test_shown.py::test_of_long_values_the_beginning_is_shown_and_the_rest_told",
    ),
    "affects the records of that schema for 30 s": (
        "unit/cli/test_kept_schemas.py::test_a_refusal_concerns_one_schema",
    ),
    "waits 30 s before the next request": (
        "unit/cli/test_kept_schemas.py::test_a_registry_that_is_down_is_left_alone_for_a_while",
    ),
    "a password is hashed 10,000,000 times at most, in DER and in BER": (
        "unit/trust/test_key_stores.py::test_hashes_without_end_are_refused_in_ber",
    ),
    "takes eight times its size, or 64 MiB, of memory": (
        "unit/broker/test_request_memory.py::test_a_request_takes_no_more_than_is_estimated",
    ),
    "its members have `message.max.bytes` for metadata, assignments and topics together": (
        "unit/broker/coordinator/test_group_membership.py::test_members_say_no_more_than_can_be_stored",
        "unit/broker/coordinator/test_consumer_groups.py::test_members_subscribe_to_no_more_than_can_be_stored",
    ),
    "parses its subscription once, before it takes any lock": (
        "unit/broker/coordinator/test_group_membership.py::test_a_subscription_is_parsed_once_and_without_a_lock",
    ),
    "50,000 comparisons of types, and 5,000 fields of a record of Avro": (
        "unit/testing/test_judges.py::test_schemas_that_take_too_long_to_compare_are_refused",
        "unit/testing/test_judges.py::test_records_of_5000_columns_that_may_be_null_are_compared",
    ),
    "holds no lock while it parses and compares schemas": (
        "integration/test_schema_registry.py::test_others_are_answered_while_a_schema_is_compared",
    ),
    "does not start with a link, a pipe or a device": (
        "integration/test_log_startup.py::test_links_and_pipes_in_a_data_directory_are_refused",
    ),
    "10 s (`socket.connection.setup.timeout.ms`)": (
        "unit/network/test_selector.py::test_a_login_that_is_not_complete_in_time_is_closed",
    ),
    "share 16 MiB of memory, of which each always gets 16 KiB": (
        "unit/network/test_memory_pool.py::test_small_frames_are_granted_when_nothing_is_left",
    ),
    "a sixteenth of the process's file descriptors for connections, 64 at most": (
        "unit/common/test_open_files.py::test_descriptors_are_shared",
    ),
    "leave a quarter of the process's file descriptors free": (
        "unit/common/test_open_files.py::test_descriptors_are_shared",
    ),
    "A request has 10 s": ("integration/test_local_server.py::test_a_request_that_is_too_slow_is_ended",),
    "Its first line and headers have 128 KiB": ("integration/test_local_server.py::test_a_head_has_a_limit",),
    "1 MiB of text, 100 levels, 100,000 values of a row": (
        "hostile/test_bounds.py::test_a_schema_has_as_much_as_the_page_says",
    ),
    "A default that is written for a missing column has 5,000 values and 64 KiB": (
        "hostile/test_bounds.py::test_a_default_has_as_much_as_the_page_says",
    ),
    "a record has 131,072 headers at most": (
        "hostile/test_bounds.py::test_a_record_has_as_many_headers_as_the_page_says",
    ),
    "Texts of a registry are cut to 1,500 characters": (
        "hostile/test_bounds.py::test_a_text_of_a_registry_is_as_long_as_the_page_says",
    ),
    "creates 10,000 partitions at most": ("hostile/test_bounds.py::test_a_request_creates_what_the_page_says",),
    "its body 4 MiB": ("hostile/test_bounds.py::test_bodies_and_reports_are_as_large_as_the_page_says",),
    "a line of 16 MiB, numbers of 64 bits, an error of 2,000 characters": (
        "hostile/test_bounds.py::test_bodies_and_reports_are_as_large_as_the_page_says",
    ),
    "and never unpickles them": ("unit/spark/test_commit.py::test_what_executors_return_is_never_run",),
    "PLAIN and tokens need TLS; without TLS the client logs a warning": (
        "unit/client/test_security.py::test_clear_text_password_and_unused_options_are_warned_of",
    ),
    "SCRAM proves it without sending it": ("unit/network/test_sasl.py::test_the_exchange_of_the_rfc_byte_for_byte",),
    "1 GiB for the objects that the client decodes from it": (
        "hostile/test_answers.py::test_an_answer_has_the_memory_that_the_page_says",
        "hostile/test_answers.py::test_an_answer_takes_no_more_than_is_estimated",
    ),
    "uses TLS 1.2 or newer, without renegotiation and compression": (
        "hostile/test_security_promises.py::test_tls_has_no_older_version_and_no_renegotiation",
        "integration/test_security_under_load.py::test_a_wrong_setting_fails_every_send_with_its_cause",
        "integration/test_schema_registry.py::test_another_servers_certificate_is_refused",
        "integration/test_token_endpoint.py::test_secret_is_not_sent_to_strangers",
    ),
    "`consume` then ends with the exit code 3": (
        "hostile/test_attacks.py::test_consume_shows_the_records_around_a_hostile_one",
    ),
    "decodes values for one second, and waits one second for a registry": (
        "hostile/test_deadlines.py::test_a_page_gives_a_registry_a_second",
    ),
    "redirects are not followed": (
        "integration/test_token_endpoint.py::test_refusal_names_reason_and_todo_not_the_secret",
        "integration/test_schema_registry.py::test_answers_of_hostile_servers_are_refused",
    ),
    "120 s, or `--timeout` of a command": (
        "hostile/test_deadlines.py::test_a_question_to_a_registry_ends_with_all_references",
    ),
    "all responses together have `--timeout`": (
        "hostile/test_deadlines.py::test_a_command_ends_in_its_time_however_many_answers",
        "hostile/test_deadlines.py::test_every_command_with_a_time_out_is_listed",
    ),
    "If a member's assignment or the metadata of an offset is invalid": (
        "hostile/test_readers.py::test_a_reader_ends_with_a_value_or_its_error",
    ),
    "C0 except tab and new line, DEL, C1": (
        "unit/common/test_text.py::test_controls_are_escaped",
        "unit/preflight/test_steps.py::test_texts_of_brokers_do_not_control_a_terminal",
        "unit/cli/test_report.py::test_errors_in_a_report_control_no_terminal",
    ),
    "all invisible characters, so that no name can start a line": (
        "unit/common/test_text.py::test_controls_are_escaped",
    ),
    "hides it in texts of every status": (
        "hostile/test_repeated_secrets.py::test_a_refusal_is_shown_without_the_secret",
    ),
    "An address of a registry, a token endpoint or a broker that cannot be parsed is not shown": (
        "unit/registry/test_registry_config.py::test_addresses_are_shown_without_user_and_password",
        "hostile/test_attacks.py::test_an_attack_finds_nothing",
    ),
    "in Spark's options, plans, UI, event log and checkpoints": (
        "spark/test_secrets.py::test_no_secret_by_reference_is_seen_in_spark",
    ),
    "in Kafka, in reports, in logs, in a `repr` or in error texts of kafkalite": (
        "integration/test_security.py::test_no_secret_is_in_a_log_a_repr_or_an_error",
        "spark/test_secrets.py::test_no_secret_by_reference_is_seen_in_spark",
        "unit/common/test_config.py::test_a_secret_is_not_in_the_repr",
        "unit/common/test_references.py::test_what_was_read_is_in_no_error",
    ),
    "`kafka.ssl.keystore.key` does not match": (
        "hostile/test_security_promises.py::test_sparks_expression_hides_what_the_page_says",
    ),
    "sends the secret to the token endpoint only, over TLS with a verified host name": (
        "integration/test_token_endpoint.py::test_secret_is_not_sent_to_strangers",
    ),
    "it listens on the loopback interface unless `--host` says otherwise": (
        "hostile/test_security_promises.py::test_the_broker_listens_on_loopback_alone",
    ),
    "A listener that other machines can reach without TLS or without authentication causes a warning": (
        "unit/broker/test_embedded_cluster.py::test_listener_open_to_others_without_protection_is_warned_of",
    ),
    "Only their owner can read its files": (
        "unit/broker/test_embedded_cluster.py::test_files_of_the_broker_are_their_owners",
    ),
    "one write of a file": ("unit/broker/test_one_write.py::test_a_request_is_stored_in_one_write",),
    "names of topics and figures, and neither data nor secrets": (
        "hostile/test_attacks.py::test_an_attack_finds_nothing",
        "unit/spark/test_lineage.py::test_a_login_in_an_address_is_not_sent",
    ),
    "For a row that could not be written they contain the number, the column and the kind of problem": (
        "hostile/test_attacks.py::test_an_attack_finds_nothing",
    ),
    "but follow no links there": ("unit/ui/test_reports.py::test_only_files_that_lie_in_the_folder_are_shown",),
    "compares each jar with its checksum in `scripts/jars.sha256` at each use": (
        "integration/test_scripts.py::test_a_jar_with_another_checksum_is_not_installed",
        "integration/test_scripts.py::test_jars_are_checked_each_time_and_whatever_the_folder_has",
    ),
    "the actions of the workflows, by their commits": (
        "architecture/test_packaging.py::test_actions_of_workflows_are_pinned_by_commit",
    ),
}

#: Of docs/security.md, which test_security_page.py runs besides.
RECIPES: Final[dict[str, tuple[str, ...]]] = {
    "does not resolve references within the replaced text": (
        "unit/common/test_references.py::test_a_reference_stands_for_what_it_does_in_java",
    ),
    "by default all three, and none if it is empty": (
        "unit/common/test_references.py::test_providers_can_be_turned_off",
    ),
    "No password, secret, key or token is in a `repr`, a log or an error of kafkalite": (
        "integration/test_security.py::test_no_secret_is_in_a_log_a_repr_or_an_error",
        "hostile/test_repeated_secrets.py::test_a_refusal_is_shown_without_the_secret",
        "spark/test_secrets.py::test_no_secret_by_reference_is_seen_in_spark",
    ),
    "Only an empty `ssl.endpoint.identification.algorithm` disables this check": (
        "integration/test_security_under_load.py::test_a_wrong_setting_fails_every_send_with_its_cause",
    ),
    "The client proves that it knows the password without sending it": (
        "unit/network/test_sasl.py::test_the_exchange_of_the_rfc_byte_for_byte",
    ),
    "Only the reference to the secret travels to the executors": (
        "spark/test_secrets.py::test_no_secret_by_reference_is_seen_in_spark",
    ),
    "for `sasl.login.retry.backoff.max.ms`": (
        "integration/test_token_endpoint.py::test_passing_trouble_is_tried_again",
    ),
    "If all retries fail, the client starts the next login after 10 s": (
        "unit/http/test_token_login.py::test_wrong_secret_is_asked_once_in_ten_seconds",
    ),
    "The token endpoint must be `https://`, except on localhost. The client follows no redirects": (
        "integration/test_token_endpoint.py::test_plain_http_is_for_this_machine",
        "integration/test_token_endpoint.py::test_refusal_names_reason_and_todo_not_the_secret",
    ),
}

#: Sentences of SECURITY.md with a number or a "not" that promise nothing about what the code does: advice, what is not
#: trusted, and what is told of Spark, of the scripts and of releases.
NO_PROMISES: Final = (
    "Report it privately, not in a public issue",
    "If its host has no such page, open an issue that contains only the sentence",
    "the configuration without secrets",
    "Only the latest release gets corrections",
    "not trusted with",
    "Do not give it an address that others can reach",
    "if none is installed, with the system's package manager",
    "its data is not encrypted on disk",
    "Neither jars nor packages were compared with a list",
)
