"""Why each place of the source that opens, imports, runs or unpickles something by a name is safe.

A row has the function, what it calls, and the reason: who chooses the name, or which pattern checks it. A new call
turns ``test_places.py`` red until it has a row.
"""

from __future__ import annotations

from typing import Final

_DATA = "The folder of the option data.dir, and below it names of ours and of topics, which Kafka's pattern checks."
_TEMPORARY = "A new name that the system's library makes, which only the user of this process may open."
_LEFT = (
    "Folders with our prefix and our mark in the system's temporary folder, whose lock is free; links are not followed."
)
_SHIPPED = "A file of the package, whose name is one of a table of ours."
_OPTION = "The path is an option, an argument or a checkpoint of the user who runs this process; nobody else sets it."
_MODULE = "A module of ours or of a library, by a constant or by a name that was looked up in a table of ours."
_DEVICE = "A device of the system, by a constant name."
_PLUGIN = "The dotted name is the user's own option; no name of a record, a broker or a registry gets here."
_REFERENCE = (
    "The reference is in an option of the user; what it stands for, and answers of others, are never searched for more."
)
_IMPORTED = "A file of the user's option, or one beside it that it imports by a name that stays within its folder."
_PROTOC = (
    "Files of a new folder, named by numbers; protoc runs isolated, in an empty folder, with an environment of ours."
)
_KNOWN = "The name is one of google/protobuf/ by a pattern that has no dots and no other folder."
_ENVIRONMENT = "The name of the variable is one of a table of ours; its value is text."
_PICKLE = (
    "What this user's own driver has pickled for its workers, which Spark carries; workers' answers are not unpickled."
)
_CHECKPOINT = (
    "This interpreter and a program of ours; the location is text on its standard input, and there is no PATH."
)
_NO_PLACE = "An error is made, and nothing is opened."
_REPORTS = "Regular files of the folder of the user's option that end as reports do; links are passed over."
_INTERPRETER = "The interpreter that the user's own environment or session names is looked at; nothing is run."
_PROCESSES = "Files of the system about the JVM of this session and its children, by their numbers."
_LOCKS = "A new folder that the system's library makes, and in it names of topics of the user's own tests."
_BESIDE = "A file beside the job, by a constant name."
_KEPT = "The demo's own file in its own folder, by an option of the script that runs it."

PLACES: Final[dict[str, tuple[str, str]]] = {
    "kafka_sink.__init__:__getattr__": ("importlib.import_module", _MODULE),
    "kafka_sink.broker.coordinator.store:CoordinatorStore.__init__": ("sqlite3.connect", _DATA),
    "kafka_sink.broker.faults.disk:FaultyFileSystem.open": (".open", _DATA),
    "kafka_sink.broker.data_directory:FileLock.__init__": ("os.open", _DATA),
    "kafka_sink.broker.handlers.dispatch:module": ("importlib.import_module", _MODULE),
    "kafka_sink.broker.handlers.replicas:describe_log_dirs": ("shutil.disk_usage", _DATA),
    "kafka_sink.broker.log.filesystem:Descriptors.acquire": ("os.open", _DATA),
    "kafka_sink.broker.log.filesystem:Descriptors.create": ("os.open", _DATA),
    "kafka_sink.broker.log.filesystem:OsFileSystem.list_directory": ("os.scandir", _DATA),
    "kafka_sink.broker.log.filesystem:OsFileSystem.read_file": (".read_bytes", _DATA),
    "kafka_sink.broker.log.filesystem:OsFileSystem.remove_file": (".unlink", _DATA),
    "kafka_sink.broker.log.filesystem:OsFileSystem.remove_tree": ("shutil.rmtree", _DATA),
    "kafka_sink.broker.log.filesystem:OsFileSystem.rename": (".rename", _DATA),
    "kafka_sink.broker.log.filesystem:OsFileSystem.replace_file": (".open .unlink", _DATA),
    "kafka_sink.broker.log.filesystem:flush_directory": ("os.open", _DATA),
    "kafka_sink.broker.log.log_manager:LogManager._delete": (".rename", _DATA),
    "kafka_sink.broker.log.partition_log:PartitionLog.move_away": (".rename", _DATA),
    "kafka_sink.broker.log.segment:Segment.__init__": (".open", _DATA),
    "kafka_sink.broker.data_directory:TemporaryDirectory.__init__": (
        ".touch tempfile.gettempdir tempfile.mkdtemp",
        _TEMPORARY,
    ),
    "kafka_sink.broker.data_directory:TemporaryDirectory.remove": ("shutil.rmtree", _TEMPORARY),
    "kafka_sink.broker.data_directory:_remove_left_over": (".glob shutil.rmtree", _LEFT),
    "kafka_sink.cli.commands.files:files": (".read_text importlib.resources.files", _SHIPPED),
    "kafka_sink.cli.comparing:ExpectedRows._of_lines": (".open", _OPTION),
    "kafka_sink.cli.comparing:_files": (".rglob", _OPTION),
    "kafka_sink.cli.main:LazyGroup.get_command": ("importlib.import_module", _MODULE),
    "kafka_sink.cli.output:discard_rest": ("os.open", _DEVICE),
    "kafka_sink.common.files:make_own_directory": (".mkdir", _OPTION),
    "kafka_sink.common.files:make_own_file": ("os.open", _OPTION),
    "kafka_sink.common.files:replace_text": (".open .unlink", _OPTION),
    "kafka_sink.common.plugins:_find": ("importlib.import_module", _PLUGIN),
    "kafka_sink.common.properties:load_properties": (".read_text", _OPTION),
    "kafka_sink.common.references:_from_directory": (".read_text", _REFERENCE),
    "kafka_sink.common.references:_from_environment": ("os.environ.get", _REFERENCE),
    "kafka_sink.formats.column_format:format_of": ("importlib.import_module", _MODULE),
    "kafka_sink.formats.files:_descriptor_set": (".read_bytes", _OPTION),
    "kafka_sink.formats.files:_folder": (".rglob", _OPTION),
    "kafka_sink.formats.files:_text": (".read_text", _IMPORTED),
    "kafka_sink.formats.protobuf.descriptors:_compiled": (
        ".mkdir .read_bytes .write_bytes .write_text subprocess.run tempfile.TemporaryDirectory",
        _PROTOC,
    ),
    "kafka_sink.formats.protobuf.descriptors:_folder_of_protoc": ("importlib.util.find_spec", _MODULE),
    "kafka_sink.formats.protobuf.descriptors:_well_known": ("importlib.import_module", _KNOWN),
    "kafka_sink.formats.protobuf.descriptors:check_installed": ("importlib.util.find_spec", _MODULE),
    "kafka_sink.http.oauth.token_endpoint:Assertion._read": (".read_text", _OPTION),
    "kafka_sink.http.oauth.token_endpoint:TokenEndpoint._read_file": (".open", _OPTION),
    "kafka_sink.network.sasl.gssapi:GssApiClient._failure": ("os.access", _OPTION),
    "kafka_sink.producer.config:check_elsewhere": ("os.access", _OPTION),
    "kafka_sink.protocol.registry:_load": ("importlib.import_module", _MODULE),
    "kafka_sink.reports.writes:Tail.read": (".open", _OPTION),
    "kafka_sink.reports.writes:read_writes": (".open", _OPTION),
    "kafka_sink.spark.__init__:module": ("importlib.util.find_spec", _MODULE),
    "kafka_sink.spark.driver.lineage:_event": ("os.environ.get", _ENVIRONMENT),
    "kafka_sink.spark.driver.progress_line:Notebook.show": ("importlib.import_module", _MODULE),
    "kafka_sink.spark.driver.write_report:publish": (".open", _OPTION),
    "kafka_sink.spark.versions:OfOneVersion.__reduce__": ("pickle.dumps", _PICKLE),
    "kafka_sink.spark.versions:_unpickled": ("pickle.loads", _PICKLE),
    "kafka_sink.spark.driver.before_write:prepared": ("os.access", _OPTION),
    "kafka_sink.spark.streaming.checkpoint:query_of": (".read_text", _OPTION),
    "kafka_sink.spark.streaming.checkpoint:HadoopFiles.read": (".open", _OPTION),
    "kafka_sink.spark.streaming.checkpoint:LocalFiles.names": (".iterdir", _OPTION),
    "kafka_sink.spark.streaming.checkpoint:LocalFiles.read": (".open", _OPTION),
    "kafka_sink.spark.streaming.checkpoint:read_in_own_process": ("subprocess.run", _CHECKPOINT),
    "kafka_sink.spark.streaming.progress:ProgressListener.__getstate__": ("pickle.PicklingError", _NO_PLACE),
    "kafka_sink.spark.streaming.progress:ProgressListener._note_source": (".open", _OPTION),
    "kafka_sink.spark.streaming.stopping:_is_in_foreground": ("os.open", _DEVICE),
    "kafka_sink.spark.task.worker_process:configure_logging": ("os.environ.get", _ENVIRONMENT),
    "kafka_sink.spark.task.worker_process:WorkerProcess.task": ("os.environ.get", _ENVIRONMENT),
    "kafka_sink.trust.tls_context:_memory_file": ("os.memfd_create tempfile.NamedTemporaryFile", _TEMPORARY),
    "kafka_sink.trust.tls_context:TlsContexts._content": (".read_bytes", _OPTION),
    "kafka_sink.ui.pages:Reports.names": (".iterdir", _REPORTS),
    "spark_jobs.flights_to_kafka:module": (".read_text", _BESIDE),
    "spark_jobs.verify_flights:digest_of_file": (".read_bytes .write_bytes pickle.dumps pickle.loads", _KEPT),
    "spark_jobs.verify_flights:expected_records": (".open", _OPTION),
    "spark_jobs.verify_flights:main": (".read_text", _OPTION),
    "kafka_sink.spark.format_lookup:_is_own_interpreter": ("shutil.which", _INTERPRETER),
    "kafka_sink.spark.format_lookup:name_interpreter": ("os.access", _INTERPRETER),
    "kafka_sink.spark.internals:has_workers.access": (".glob .read_bytes .read_text", _PROCESSES),
    "kafka_sink.testing.__init__:__getattr__": ("importlib.import_module", _MODULE),
    "kafka_sink.testing.plugin:_locked": (".open", _LOCKS),
    "kafka_sink.testing.plugin:pytest_configure_node": ("tempfile.mkdtemp", _LOCKS),
    "kafka_sink.testing.plugin:pytest_unconfigure": ("shutil.rmtree", _LOCKS),
    "kafka_sink.ui.pages:_styles_of_maps": (".read_bytes importlib.resources.files", _SHIPPED),
}

_CONSTANT = "It is put together of constants of ours; what others write is only a value in it, or is escaped."
_SPARK = "A method of Spark's or of the log that takes a name or a record, and no format of others."
_LIBRARY = "The standard library's own constant, with values of others."

#: Formats, patterns and texts of logs that are no literals.
FORMATS: Final[dict[str, tuple[str, str]]] = {
    "kafka_sink.cli.output:_OneLine.format": ("super().format", _SPARK),
    "kafka_sink.common.remedies:remedy": ("get(code, '').format", _CONSTANT),
    "kafka_sink.common.log_context:warn": ("log.warning", _CONSTANT),
    "kafka_sink.common.repeated_secrets:RepeatedSecrets.__init__": ("re.compile", _CONSTANT),
    "kafka_sink.exactly_once.transactions:is_writer_id": ("re.fullmatch", _CONSTANT),
    "kafka_sink.exactly_once.transactions:sink_of_id": ("re.fullmatch", _CONSTANT),
    "kafka_sink.exactly_once.protocols:ParallelSink._abort_losers": ("_log.warning", _CONSTANT),
    "kafka_sink.exactly_once.protocols:ParallelSink._losers": ("_log.warning", _CONSTANT),
    "kafka_sink.producer.kafka_producer:KafkaProducer._close": ("_log.warning", _CONSTANT),
    "kafka_sink.formats.protobuf.descriptors:may_declare": ("re.search", _CONSTANT),
    "kafka_sink.http.local_server:LocalHandler.log_message": ("_log.debug", _LIBRARY),
    "kafka_sink.network.sasl.gssapi:GssApiClient._failure": ("advice.format", _CONSTANT),
    "kafka_sink.network.sasl.bearer_token:module": ("re.compile", _CONSTANT),
    "kafka_sink.network.sasl.scram:module": ("re.compile", _CONSTANT),
    "kafka_sink.preflight.connection_steps:Reachability._security": ("advice.format", _CONSTANT),
    "kafka_sink.spark.errors:module": ("re.compile", _CONSTANT),
    "kafka_sink.spark.format_lookup:look_up": ("read.format write.format", _SPARK),
    "spark_jobs.job_arguments:_read_files": ("reader.format", _SPARK),
    "spark_jobs.job_arguments:_read_stream": ("read.format reader.format", _SPARK),
    "kafka_sink.spark.task.worker_process:_StandardErrorHandler.emit": ("self.format", _SPARK),
    "kafka_sink.testing.registry.embedded_registry:module": ("re.compile", _CONSTANT),
    "kafka_sink.testing.registry.refusals:RefusalError.__init__": ("_TEXTS[code].format", _CONSTANT),
    "spark_jobs.flights_to_kafka:main": ("write.format", _SPARK),
    "spark_jobs.stream_to_kafka:main": ("writeStream.format", _SPARK),
}
