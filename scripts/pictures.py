"""Takes the screenshots of README and docs/ from runs: the pages of a stream and a topic, a report, and a notebook.

    python -m scripts.pictures [NAME …]      all of them, or ui-streams, ui-topic, report, notebook

Needs Java, the environment of the tests, and Chromium with its driver (Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import argparse
import random
import tempfile
from html import escape
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink import EmbeddedCluster
from kafka_sink.ui.pages import PageServer
from tests.support.browser import browser

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
NAMES: Final = ("ui-streams", "ui-topic", "report", "notebook")
BATCHES: Final = 24

_STYLE: Final = """
body { font: 14px sans-serif; margin: 16px 20px; color: #1f2933; background: #fff; }
table { border-collapse: collapse; margin: 8px 0; } td, th { border: 1px solid #d9dee3; padding: 3px 10px; }
caption { text-align: left; font-weight: bold; padding: 4px 0; }
.code { background: #f6f8fa; border: 1px solid #e1e4e8; margin: 10px 0 4px 60px; padding: 2px 9px; }
.out { margin: 2px 0 2px 60px; } .number { float: left; color: #5a7fb5; font: 12px monospace; padding-top: 14px; }
.text { margin-left: 60px; } pre { font: 13px monospace; margin: 6px 0; white-space: pre-wrap; }
"""


def take(name: str, url: str, width: int, height: int, *, is_dark: bool = False, until: str = "true") -> None:
    """Save a screenshot of *url* once the JavaScript *until* is true; of the whole page if *height* is 0."""
    from selenium.webdriver.support.wait import WebDriverWait

    with browser(width, height, is_dark=is_dark) as running:
        running.get(url)
        WebDriverWait(running, 60, 0.1).until(lambda it: it.execute_script(f"return {until}"))
        if not height:
            height = running.execute_script("return document.documentElement.scrollHeight")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            running.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        running.save_screenshot(str(IMAGES / f"{name}.png"))


def take_html(name: str, folder: Path, body: str, width: int, height: int) -> None:
    """Save a screenshot of a page with *body*."""
    page = folder / f"{name}.html"
    style = _STYLE + HtmlFormatter().get_style_defs(".highlight")
    page.write_text(f"<meta charset=utf-8><style>{style}</style>{body}", encoding="utf-8")
    take(name, page.as_uri(), width, height)


def run_stream(spark: SparkSession, cluster: EmbeddedCluster, folder: Path) -> Path:
    """An exactly-once stream of :data:`BATCHES` batches; the file of its report."""
    source, report = folder / "in", folder / "orders.jsonl"
    source.mkdir()
    amounts = random.Random(1)
    for number in range(BATCHES):
        lines = (
            f"customer-{amounts.randrange(97)},order {number}-{row}" for row in range(amounts.randrange(400, 4000))
        )
        (source / f"{number:03}.csv").write_text("\n".join(lines), encoding="utf-8")
    rows = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1).csv(str(source))
    query = (
        rows.writeStream.format("kafkalite")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", "orders")
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", "orders-sink")
        .option("reportPath", str(report))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    query.processAllAvailable()
    query.stop()
    return report


def notebook_html(path: Path) -> str:
    """Run the notebook at *path*; return its cells with their outputs, without the last one, which closes all."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    parts: list[str] = []
    for cell in notebook.cells[:-1]:
        if cell.cell_type == "markdown":
            title, _, rest = cell.source.replace("`", "").partition("\n")
            heading = f"<h2>{escape(title.lstrip('# '))}</h2>" if title.startswith("#") else f"<p>{escape(title)}</p>"
            parts.append(f"<div class=text>{heading}<p>{escape(rest)}</p></div>")
            continue
        code = highlight(cell.source, PythonLexer(), HtmlFormatter())
        parts.append(f"<div class=number>[{cell.execution_count}]:</div><div class=code>{code}</div>")
        parts += [f"<div class=out>{_output(each)}</div>" for each in cell.outputs if each.output_type != "stream"]
    return "".join(parts)


def _output(output: Any) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"]}">'
    return str(data.get("text/html") or f"<pre>{escape(str(data.get('text/plain', '')))}</pre>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", choices=(*NAMES, []), metavar="NAME")
    names = parser.parse_args().name or NAMES
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "notebook" in names:
            take_html("notebook", folder, notebook_html(ROOT / "examples" / "write.ipynb"), 900, 0)
        if set(names) == {"notebook"}:
            return
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        kafka_sink.register(spark)
        with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic("orders", partitions=3, replication_factor=3)
            report = run_stream(spark, cluster, folder)
            with PageServer(cluster.bootstrap_servers, 0, report=report) as server:
                drawn = "document.querySelectorAll('.main-svg .trace').length > 0"
                if "ui-streams" in names:
                    take("ui-streams", f"{server.url}streams", 1100, 760, until=drawn)
                if "ui-topic" in names:
                    cells = "document.querySelectorAll('td').length > 30"
                    take("ui-topic", f"{server.url}topics/orders", 1000, 620, is_dark=True, until=cells)
            if "report" in names:
                orders = spark.range(1_000_000).selectExpr("cast(id % 97 as string) key", "cast(id as string) value")
                options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "orders"}
                written = kafka_sink.write(orders, options=options, app_id="orders-job", version=17)
                take_html("report", folder, written._repr_html_(), 420, 0)
        spark.stop()


if __name__ == "__main__":
    main()
