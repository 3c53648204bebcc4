"""Which proxy a server is asked through, by flags and by the environment."""

import pytest

from judgeq.errors import UsageError
from judgeq.judge.http.proxies import Proxy, is_bypassed, proxy_for
from judgeq.settings.model import Access

PROXY = "http://127.0.0.1:3128"
OUTSIDE = "http://models.example.org:8000/v1"
LOOPBACK = ("http://127.0.0.1:8000/v1", "http://localhost:8000/v1", "http://[::1]:8000/v1")


@pytest.mark.parametrize(
    ("no_proxy", "host", "bypassed"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("127.0.0.0/8", "127.0.0.1", True),
        ("fd00::/8", "fd12::1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.50", False),
        ("*", "anything.example", True),
        ("example.org", "models.example.org", True),
        (".example.org", "example.org", True),
        ("*.example.org", "a.example.org", True),
        ("ample.org", "example.org", False),
        ("a.org, example.org", "example.org", True),
        ("example.org:8000", "example.org", True),
        ("example.org:9000", "example.org", False),
        ("EXAMPLE.org", "example.ORG", True),
        ("10.0.0.0/99", "10.0.0.1", False),
        ("", "example.org", False),
    ],
)
def test_no_proxy_takes_names_domains_addresses_and_ranges(
    no_proxy: str, host: str, bypassed: bool
) -> None:
    assert is_bypassed(host, 8000, no_proxy) is bypassed


def test_a_range_of_no_proxy_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", PROXY)
    assert proxy_for("http://10.1.2.3:8000/v1", Access()) == Proxy(PROXY, "$http_proxy")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert proxy_for("http://10.1.2.3:8000/v1", Access()) is None
    assert proxy_for(OUTSIDE, Access()) == Proxy(PROXY, "$http_proxy")


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("address", LOOPBACK)
def test_a_variable_in_capitals_does_not_catch_this_machine(
    monkeypatch: pytest.MonkeyPatch, variable: str, address: str
) -> None:
    monkeypatch.setenv(variable, PROXY)
    assert proxy_for(address, Access()) is None
    assert proxy_for(OUTSIDE, Access()) == Proxy(PROXY, f"${variable}")
    monkeypatch.setenv(variable.lower(), PROXY)
    assert proxy_for(address, Access()) == Proxy(PROXY, f"${variable.lower()}")


def test_the_flag_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "*")
    assert proxy_for(LOOPBACK[0], Access(proxy=PROXY)) == Proxy(PROXY, "--proxy")


def test_a_proxy_that_can_not_be_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://user:secret@h:1")
    with pytest.raises(UsageError, match=r"\$http_proxy is no address") as error:
        proxy_for(OUTSIDE, Access())
    assert "secret" not in str(error.value)
