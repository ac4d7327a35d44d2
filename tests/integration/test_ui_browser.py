"""The pages of ``kafkalite ui`` in a real browser: Chromium of the system's packages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient, NewTopic
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.ui.server import PageServer
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
def url(cluster: EmbeddedCluster) -> Iterator[str]:
    with PageServer(cluster.bootstrap_servers, 0) as server:
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
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


@pytest.mark.behaviour("Pages in the browser", "Hostile records are text: scripts, a megabyte, bytes that are no UTF-8")
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


@pytest.mark.behaviour("Pages in the browser", "A page whose server is gone says that it is not live")
def test_page_says_when_its_server_is_gone(cluster: EmbeddedCluster, browser: Any) -> None:
    with PageServer(cluster.bootstrap_servers, 0) as server:
        browser.get(server.url + "groups")
    assert until(browser, "document.getElementById('live').textContent == 'not live'")
