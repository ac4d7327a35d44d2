"""The pages of ``kafkalite ui`` in a real browser: Chromium of the system's packages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient, NewTopic
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.ui.pages import PageServer
from tests.support.amounts import PAGE_TOPICS

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: the packages chromium and chromium-driver are not installed"
)
WAIT_S = 60
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty batches, of which one is missing, one is torn and one has failed."""
    path = tmp_path_factory.mktemp("reports") / ("r" * 200 + ".jsonl")
    write = {"rows": 900, "bytes": 1, "wire_bytes": 1, "tasks": 1, "elapsed_ms": 400, "commit_ms": 50}
    write |= {"ack_p50_ms": 3, "ack_p99_ms": 40}
    with path.open("w") as file:
        for batch in (number for number in range(30) if number != 12):
            part = {"rows": 899 if batch == 20 else 900, "first": 0, "last": 1}
            more = {"decision": "failed", "error": "x" * 300} if batch == 25 else {}
            times = {"batch": batch, "timestamp_ms": 1_700_000_000_000 + batch * 3_000}
            file.write(json.dumps({**write, **times, **more, "partitions": {"t-0": part}}) + "\n")
    return path


@pytest.fixture(scope="module")
def url(cluster: EmbeddedCluster, report: Path) -> Iterator[str]:
    with PageServer(cluster.bootstrap_servers, 0, report=report) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(DRIVER))
    running.set_page_load_timeout(WAIT_S)
    running.set_script_timeout(WAIT_S)
    yield running
    running.quit()


@pytest.fixture(scope="module")
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, "max.request.size": 2_000_000}) as sending:
        yield sending


def until(browser: Any, condition: str) -> Any:
    """Wait until the JavaScript *condition* is true; its value."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, WAIT_S, 0.05).until(lambda it: it.execute_script(f"return {condition}"))


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


@pytest.mark.behaviour("Pages in the browser", "A page is live: it changes what differs, and nothing else")
def test_page_is_live_without_touching_what_stays(
    cluster: EmbeddedCluster, producer: KafkaProducer, browser: Any, url: str
) -> None:
    topics = [NewTopic(f"many-{number:04}", partitions=1) for number in range(PAGE_TOPICS)]
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics(topics)
    focused = topics[PAGE_TOPICS * 7 // 10].name
    browser.get(url)
    until(browser, f"document.querySelectorAll('tbody tr').length == {PAGE_TOPICS}")
    # Every change below the table from now on, and the focused link.
    browser.execute_script(
        "window.changed = []; new MutationObserver(all => all.forEach(one => changed.push(one.target)))"
        ".observe(document.querySelector('table'), {subtree: true, childList: true, characterData: true,"
        " attributes: true}); document.querySelector(`tr[data-key=${arguments[0]}] a`).focus(); window.at = scrollY;",
        focused,
    )
    producer.send(ProducerRecord("many-0003", b"x"))
    producer.flush()
    until(browser, "document.querySelectorAll('tbody tr')[3].children[2].textContent == '1'")
    until(browser, "document.querySelectorAll('tbody tr')[3].children[3].className == 'n busy'")
    # The others only had their rates, which are known when a topic was seen twice.
    texts = "changed.filter(node => node.nodeType != Node.TEXT_NODE || node.parentElement.cellIndex != 3)"
    changed = f"{texts}.map(node => (node.closest ? node : node.parentElement).closest('tr').dataset.key)"
    assert set(browser.execute_script(f"return {changed}")) == {"many-0003"}
    assert browser.execute_script("return document.activeElement.textContent") == focused
    assert browser.execute_script("return scrollY == window.at && scrollY > 0")
    cluster.create_topic("many-0003a")
    until(browser, "document.querySelectorAll('tbody tr')[4].dataset.key == 'many-0003a'")
    assert browser.execute_script("return document.activeElement.textContent") == focused
    assert browser.execute_script("return document.getElementById('live').textContent") == "live"


@pytest.mark.behaviour("Pages in the browser", "Keys move between pages, rows and the search, which needs no Enter")
def test_keyboard_alone_finds_a_record(
    cluster: EmbeddedCluster, producer: KafkaProducer, browser: Any, url: str
) -> None:
    cluster.create_topic("keyboard")
    for number in range(100):
        producer.send(ProducerRecord("keyboard", f"value {number}".encode(), key=f"key-{number}".encode()))
    producer.flush()
    browser.get(url + "groups")
    press(browser, "1")
    until(browser, "location.pathname == '/topics' && document.readyState == 'complete'")
    press(browser, "/", "keyboa")
    until(browser, "document.querySelectorAll('tbody tr').length == 1")
    assert browser.current_url.endswith("?q=keyboa")
    press(browser, "\ue00c", "j", "\ue007")
    until(browser, "location.pathname == '/topics/keyboard' && document.readyState == 'complete'")
    press(browser, "/", "key-77")
    until(browser, "document.querySelectorAll('.records tbody tr').length == 1")
    assert "value 77" in browser.execute_script("return document.querySelector('.records').textContent")
    assert browser.execute_script("return document.activeElement.value") == "key-77"


@pytest.mark.behaviour(
    "Pages in the browser", "Hostile records are text: scripts, a megabyte, bytes that are not UTF-8"
)
def test_hostile_records_are_only_text(
    cluster: EmbeddedCluster, producer: KafkaProducer, browser: Any, url: str
) -> None:
    cluster.create_topic("hostile", configs={"max.message.bytes": "2000000"})
    for value in (SCRIPT.encode(), b"x" * 1_048_576, b"\xff\xfe\x80", "\u202eright to left".encode()):
        producer.send(ProducerRecord("hostile", value, key=value[:200], headers=[(SCRIPT, value[:100])]))
    producer.flush()
    browser.get(url + "topics/hostile")
    until(browser, "document.querySelectorAll('.records tbody tr').length == 4")
    # Also after the page has refreshed itself.
    producer.send(ProducerRecord("hostile", SCRIPT.encode()))
    producer.flush()
    until(browser, "document.querySelectorAll('.records tbody tr').length == 5")
    assert browser.title == "hostile · kafkalite"
    text = browser.execute_script("return document.querySelector('.records').textContent")
    assert text.count(SCRIPT) >= 6
    assert "ff fe 80" in text and "\\u202eright to left" in text
    assert "and 1,046,576 bytes more" in text
    assert browser.execute_script("return document.querySelectorAll('main script, main img').length") == 0
    assert browser.execute_script("return document.body.scrollWidth <= innerWidth")
    assert browser.execute_script(
        "return performance.getEntriesByType('resource').every(it => it.name.startsWith(origin))"
    )


#: How far the legend begins below the dates of the axis, in pixels.
BELOW_THE_DATES = (
    "const box = name => document.querySelector(`[data-chart] ${name}`).getBoundingClientRect();"
    "return box('.legend').top - Math.max(...[...document.querySelectorAll('[data-chart] .xtick text')]"
    ".map(it => it.getBoundingClientRect().bottom))"
)


@pytest.mark.behaviour("Pages in the browser", "Pages are usable at 400 and 1,300 px, in light and dark")
@pytest.mark.behaviour("Pages in the browser", "The browser has nothing to say of a page: no error, no violated policy")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1_300])
def test_pages_fit_narrow_and_wide_windows(
    cluster: EmbeddedCluster, producer: KafkaProducer, browser: Any, url: str, width: int, scheme: str
) -> None:
    long = f"{width}-{scheme}-".ljust(249, "n")
    cluster.create_topic(long)
    why = "column 'total' is no number; cast it before the write. " * 10
    producer.send(ProducerRecord(long, b"v" * 300, key=b"k" * 249, headers=[("kafkalite.message", why.encode())]))
    producer.flush()
    with GroupAdmin(cluster.bootstrap_servers) as admin:
        admin.set_offsets("g" * 249, {TopicPartition(long, 0): 0})
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == 400}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for path in ("topics", f"topics/{long}", "groups", "groups/" + "g" * 249, "transactions", "streams"):
            browser.get(url + path)
            # Not innerWidth, which grows with what is too wide for a phone.
            widest = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth)"
            assert browser.execute_script(f"return {widest}") <= width, path
            dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 27)"
            assert dark == (scheme == "dark")
            if path == "streams":
                # Of the rates, and of the tasks and the commits of 29 writes; the missing, the torn and the failed one.
                assert until(browser, "document.querySelectorAll('[data-chart] .bars .point').length == 25 + 2 * 29")
                assert until(browser, "document.querySelectorAll('[data-chart] .trace.scatter').length == 2 + 3")
                assert browser.execute_script(BELOW_THE_DATES) >= 0
            elif path.endswith("n"):
                # No column is cut.
                table = "document.querySelector('table.narrow')"
                assert browser.execute_script(f"return {table}.scrollWidth <= {table}.clientWidth")
        assert browser.get_log("browser") == []
        browser.get(url + f"topics/{long}")
        # The reason of a dead letter is read whole, within the window.
        box = browser.execute_script(
            "const it = document.querySelector('.records dd code'), box = it.getBoundingClientRect();"
            "const cut = it.parentElement.scrollHeight - it.parentElement.clientHeight;"
            "return [it.textContent, box.left, box.right, cut]"
        )
        assert box[0] == why and 0 <= box[1] < box[2] <= width and box[3] <= 1
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.behaviour("Pages in the browser", "A page whose server is gone says that it is not live")
def test_page_says_when_its_server_is_gone(cluster: EmbeddedCluster, browser: Any) -> None:
    with PageServer(cluster.bootstrap_servers, 0) as server:
        browser.get(server.url + "groups")
    assert until(browser, "document.getElementById('live').textContent == 'not live'")
