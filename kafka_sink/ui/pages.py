"""The pages and the script and style that they use, as an ASGI application, and their server on loopback.

Handlers run on the threads of the web server. Only GET is answered, and only to the machine's own browser: requests for
other hosts, as with DNS rebinding, and from pages of other origins are refused. The only files that are read are the
reports that the user named, files of the option reportPath.

Source: https://www.starlette.io; https://www.w3.org/TR/CSP3; https://fetch.spec.whatwg.org (Origin).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafka_sink.common.errors import ApiError, KafkaError, UnknownTopicOrPartitionError
from kafka_sink.common.exposition import rendered
from kafka_sink.common.metrics import Metric
from kafka_sink.common.text import without_controls
from kafka_sink.common.version import VERSION
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.http.local_asgi import AsgiServer
from kafka_sink.http.local_server import PATH, refusal_of
from kafka_sink.reports.chart import CONFIG, chart_of
from kafka_sink.reports.writes import SinkProgress, StreamFigures, Tail, read_writes, recent_rows_per_s, with_before
from kafka_sink.ui import shown
from kafka_sink.ui.cluster_view import (
    MOST_GROUPS,
    MOST_TRANSACTIONS,
    SEARCHED_RECORDS,
    ClusterView,
    RecordSearch,
    cluster_metrics,
)
from kafka_sink.ui.shown import ByteView

#: The writes that a page shows.
SHOWN_WRITES: Final = 100
_SUFFIXES: Final = (".jsonl", ".json")


class Reports:
    """The report *path*, or the reports in the folder *path*; they may be created later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # File → its size and modification time, and the content at that time.
        self._read: dict[Path, tuple[tuple[int, int], tuple[int, Sequence[SinkProgress]]]] = {}
        self._lock = threading.Lock()
        # Name of a file → the figures of its lines so far.
        self._figures: dict[str, tuple[Tail, StreamFigures]] = {}

    def names(self) -> list[str]:
        """The names of the files, the last modified first."""
        if not self.path.is_dir():
            return [self.path.name] if self.path.exists() else []
        # A link would show lines of another file, and reading a pipe would block.
        files = (file for file in self.path.iterdir() if file.suffix in _SUFFIXES and not file.is_symlink())
        dated = [(status.st_mtime_ns, file.name) for file in files if S_ISREG((status := file.stat()).st_mode)]
        return [name for _, name in sorted(dated, reverse=True)]

    def read(self, name: str) -> tuple[int, Sequence[SinkProgress]]:
        """The number of writes in the file *name*, one of :meth:`names`, and the last writes.

        :raises ValueError: if it is no report.
        :raises OSError: if it cannot be read.
        """
        file = self._file(name)
        status = file.stat()
        stamp = status.st_size, status.st_mtime_ns
        kept = self._read.get(file)
        if kept is None or kept[0] != stamp:
            kept = stamp, read_writes(file, SHOWN_WRITES)
            self._read[file] = kept
        return kept[1]

    def metrics(self) -> Iterator[Metric]:
        """The families ``kafka_sink_…`` of all files, each with its name as the label ``report``.

        :raises ValueError: if a file is no report.
        :raises OSError: if a file cannot be read.
        """
        with self._lock:
            for name in self.names():
                tail, figures = self._figures.setdefault(
                    name, (Tail(self._file(name)), StreamFigures(("report", name)))
                )
                for line in tail.read():
                    figures.add(line)
                yield from figures.metrics()

    def _file(self, name: str) -> Path:
        return self.path / name if self.path.is_dir() else self.path


#: The headers that are shown of a record; one of a megabyte may have a quarter of a million.
MOST_HEADERS: Final = 20

_HERE: Final = Path(__file__).parent
#: The hash of an empty style element, to which plotly.js adds its rules.
_EMPTY_STYLE: Final = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
_HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; script-src 'self'; style-src 'self' {_EMPTY_STYLE}; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Values = dict[str, Any]
_HOST: Final = "127.0.0.1"


class OwnBrowserOnly:
    """Refuses requests that name another host or come from another origin, and adds the headers of each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = refusal_of(headers.get("host", ""), headers.get("origin"))
        answer = self._app if refusal is None else PlainTextResponse(refusal, HTTPStatus.FORBIDDEN)
        await answer(scope, receive, send_with_headers)


#: plotly.js adds the rules of its maps, which the policy refuses, unless an element has the id of theirs.
_STYLES_OF_MAPS: Final = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')


@cache
def _styles_of_maps() -> list[str]:
    script = resources.files("plotly") / "package_data" / "plotly.min.js"
    return sorted({style.decode() for style in _STYLES_OF_MAPS.findall(script.read_bytes())})


class Pages:
    """The handlers. *reports* is None if no report is watched; *view* shows keys and values."""

    def __init__(self, cluster: ClusterView, reports: Reports | None, view: shown.ByteView) -> None:
        self._cluster = cluster
        self._reports = reports
        self._view = view
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            # Names come from brokers and their clients, so they are not trusted.
            finalize=lambda value: without_controls(value) if type(value) is str else value,
        )
        self._templates.filters.update(
            number=shown.shown_number, rate=shown.shown_rate, age=shown.shown_age, time=shown.shown_time
        )
        self._templates.globals.update(most_headers=MOST_HEADERS, version=VERSION, servers=cluster.bootstrap_servers)

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/", lambda request: RedirectResponse("/topics")),
                Route("/topics", self.topics),
                Route("/topics/{name:path}", self.topic),
                Route("/groups", self.groups),
                Route("/groups/{name:path}", self.group),
                Route("/transactions", self.transactions),
                Route("/streams", self.streams),
                Route(PATH, self.scraped),
                Mount("/static", StaticFiles(directory=_HERE / "static", packages=[("plotly", "package_data")])),
            ],
            middleware=[Middleware(OwnBrowserOnly)],
            exception_handlers={HTTPException: self._not_found},
        )

    def topics(self, request: Request) -> Response:
        """All topics whose names contain the parameter ``q``."""
        part = request.query_params.get("q", "")

        def values() -> Values:
            topics = self._cluster.topics()
            named = [topic for topic in topics if part.lower() in topic["topic"].lower()]
            return {"topics": named, "count": len(topics)}

        return self._page("topics", values, query=part)

    def topic(self, request: Request) -> Response:
        """A topic, its partitions, and its records: the newest, or those that the parameters ``key``, ``value`` and
        ``from`` (an offset or a time) search."""
        name, query = request.path_params["name"], request.query_params
        search = RecordSearch(query.get("key", ""), query.get("value", ""), query.get("from", "").strip())

        def values() -> Values:
            topic = self._cluster.topic(name)
            records: Sequence[ConsumedRecord] = ()
            problem = ""
            try:
                records = self._cluster.records(name, search)
            except (ValueError, ApiError) as error:
                # The user may still be typing the start: the page keeps the form and shows the problem.
                if not search.since:
                    raise
                problem = str(error)
            shown = {"problem": problem, "shown": self._view.of_page(), "searched": SEARCHED_RECORDS}
            return {"topic": topic, "records": records, **shown}

        return self._page("topic", values, name=name, search=search)

    def groups(self, request: Request) -> Response:
        """The groups: lags of consumers, and the last batches of sinks."""

        def values() -> Values:
            count, groups = self._cluster.groups()
            return {"groups": groups, "count": count, "most": MOST_GROUPS}

        return self._page("groups", values)

    def group(self, request: Request) -> Response:
        """A group and its partitions."""
        name = request.path_params["name"]
        return self._page("group", lambda: {"group": self._cluster.group(name)}, name=name)

    def transactions(self, request: Request) -> Response:
        """The transactions that are open."""

        def values() -> Values:
            count, transactions = self._cluster.transactions()
            return {"transactions": transactions, "count": count, "most": MOST_TRANSACTIONS}

        return self._page("transactions", values)

    def streams(self, request: Request) -> Response:
        """The writes of a stream over time, from the report that the parameter ``file`` names."""
        reports = self._reports
        if reports is None:
            return self._page("streams", dict, path="", names=(), chosen="", rows=())
        names = reports.names()
        chosen = request.query_params.get("file", names[0] if names else "")
        if chosen and chosen not in names:
            raise HTTPException(HTTPStatus.NOT_FOUND)

        def values() -> Values:
            count, writes = reports.read(chosen) if chosen else (0, ())
            lags = [write.lag for write in writes if write.lag is not None]
            return {
                "count": count,
                "rows": with_before(writes)[::-1],
                "styles": _styles_of_maps(),
                "chart": {**figure, "config": CONFIG} if (figure := chart_of(writes)) is not None else None,
                "rate": recent_rows_per_s(writes),
                "lag": lags[-1] if lags else None,
            }

        path, is_folder = reports.path, reports.path.is_dir()
        return self._page("streams", values, path=str(path), is_folder=is_folder, names=names, chosen=chosen)

    def metrics(self) -> Iterator[Metric]:
        """The metrics of the streams in the reports and of the cluster.

        :raises ValueError: if a file is no report.
        :raises OSError: if one cannot be read.
        """
        if self._reports is not None:
            yield from self._reports.metrics()
        yield from cluster_metrics(self._cluster)

    def scraped(self, request: Request) -> Response:
        """All metrics, for Prometheus."""
        try:
            text, content_type = rendered(self.metrics(), request.headers.get("accept", ""))
        except (OSError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return Response(text, media_type=content_type)

    def _page(self, template: str, values: Callable[[], Values], **always: Any) -> Response:
        """The page of the *template* with *values*; a page with the error if they cannot be read."""
        try:
            return self._render(template, {**always, **values()})
        except UnknownTopicOrPartitionError as error:
            return self._render("error", {**always, "page": template, "error": str(error)}, HTTPStatus.NOT_FOUND)
        except (KafkaError, OSError, ValueError) as error:
            text = str(error) or type(error).__name__
            return self._render("error", {**always, "page": template, "error": text}, HTTPStatus.SERVICE_UNAVAILABLE)

    def _not_found(self, request: Request, error: Exception) -> Response:
        status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
        text = f"{request.url.path} is not a page" if status == HTTPStatus.NOT_FOUND else status.phrase
        return self._render("error", {"page": "", "name": status.phrase, "error": text}, status)

    def _render(self, template: str, values: Values, status: HTTPStatus = HTTPStatus.OK) -> Response:
        page = values.pop("page", template)
        return HTMLResponse(self._templates.get_template(f"{template}.html").render(page=page, **values), status)


class PageServer(AsgiServer):
    """Serves the pages of the cluster at *bootstrap_servers* while it is entered.

    :param port: the port of 127.0.0.1; 0 = any free port, see :attr:`url`.
    :param report: a file of the option reportPath, or a folder with such files.
    :param properties: client properties under Kafka's names.
    :param decode: converts a value in Confluent's wire format to JSON; without it bytes are shown.
    :raises OSError: if the port is in use.
    :raises ConfigError: if a property is unknown or invalid.
    """

    name = "kafkalite-ui"

    def __init__(
        self,
        bootstrap_servers: str,
        port: int,
        *,
        report: Path | None = None,
        properties: dict[str, Any] | None = None,
        timeout_ms: int = 15_000,
        decode: Callable[[bytes], str] | None = None,
    ) -> None:
        self._cluster = ClusterView(bootstrap_servers, properties or {}, timeout_ms)
        self.pages = Pages(self._cluster, None if report is None else Reports(report), ByteView(decode))
        super().__init__((_HOST, port), self.pages.app())

    @property
    def url(self) -> str:
        return super().url + "/"

    def close(self) -> None:
        """Stop, and close the connections to the cluster."""
        super().close()
        self._cluster.close()
