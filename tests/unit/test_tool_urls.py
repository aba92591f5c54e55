"""One form of a URL, and the URLs in what a person wrote."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.planning.places import paths_in
from switchboard.domain.errors import ConfigurationError
from switchboard.tools.urls import MOST_URLS, canonical, hosts_of, place_of, port_of, urls_in, written_urls


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTPS://EXAMPLE.com:443/A?b=C#d", "https://example.com/A?b=C"),
        ("http://example.com:80/", "http://example.com/"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("http://example.com./x", "http://example.com/x"),
        ("http://bücher.example/ä", "http://xn--bcher-kva.example/%C3%A4"),
        ("http://example.com?q", "http://example.com/?q"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("http://@example.com/", "http://example.com/"),
        ("http://user@example.com/", None),
        ("http://user:word@example.com/", None),
        ("http://:@example.com/", None),
        ("http://good.example\\@evil.example/", None),
        ("http://good.example%2f@evil.example/", None),
        ("http://ex%61mple.com/", None),
        ("http://exam ple.com/", None),
        ("http://example.com:0/", None),
        ("http://example.com:99999/", None),
        ("http://[fe80::1%25eth0]/", None),
        ("http://0177.0.0.1/", None),
        ("http://\uff45xample.com/", None),
        ("http:///path", None),
        ("//example.com/", None),
        ("example.com", None),
        ("ftp://example.com/", None),
        ("file:///etc/passwd", None),
        ("gopher://example.com/", None),
        ("javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("http://example.com/\r\nHost: evil.example", None),
        ("http://example.com/" + "x" * 2000, None),
        ("", None),
    ],
)
def test_canonical(url: str, form: str | None) -> None:
    assert canonical(url) == form


URLS = st.one_of(
    st.text(max_size=20).map("http://example.com/".__add__),
    st.text(max_size=10).map("https://".__add__),
    st.lists(
        st.sampled_from(["http", "://", "a.b", "@", ":", "80", "/", "?", "#", "\\", "%2f", "..", "[::1]", "é"])
    ).map("".join),
    st.text(max_size=20),
)


@given(URLS)
def test_a_canonical_url_stays_as_it_is(url: str) -> None:
    form = canonical(url)
    if form is not None:
        assert canonical(form) == form
        assert re.fullmatch(r"https?://[a-z0-9._:\[\]-]+/[!-~]*", form)
        assert "#" not in form
        assert "@" not in place_of(form)
        assert 0 < port_of(form) < 65536


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("no address, not even example.com", set()),
        ("see https://a.example/x", {"https://a.example/x"}),
        ("see https://a.example/x.", {"https://a.example/x", "https://a.example/x."}),
        ("(https://a.example/x)", {"https://a.example/x", "https://a.example/x)"}),
        ("[this](https://a.example/x_(y))", {f"https://a.example/x_(y{end}" for end in ("", ")", "))")}),
        ("<https://a.example/x|shown>", {"https://a.example/x"}),
        ("'HTTP://A.example/x'", {"http://a.example/x"}),
        ("https://a.example/1 and http://b.example/2", {"https://a.example/1", "http://b.example/2"}),
        ("https://a.example/\u4f60\u3002", {"https://a.example/%E4%BD%A0", "https://a.example/%E4%BD%A0%E3%80%82"}),
        ("https://user:word@a.example/", set()),
        ("https://a.example/x\nhttps://b.example", {"https://a.example/x", "https://b.example/"}),
    ],
)
def test_urls_in_texts(text: str, urls: set[str]) -> None:
    assert urls_in(text) == urls


@given(URLS.filter(lambda url: not re.search(r"[\s<>\"'`|\\^{}\x00-\x20\x7f]", url)), st.text(max_size=5))
def test_what_a_person_wrote_may_be_fetched(url: str, after: str) -> None:
    form = canonical(url)
    if form is not None:
        assert form in urls_in(f"{after} {url} {after}")


def test_a_text_full_of_urls_is_read_so_far() -> None:
    assert len(urls_in(" ".join(f"http://a.example/{number}" for number in range(1000)))) == MOST_URLS
    assert urls_in("http://" + "x" * 1_000_000) == frozenset()
    assert urls_in("http://a.example/" + ")" * 1_000_000) == frozenset()


def test_hosts_of_settings() -> None:
    names = ["Docs.Python.org", "bücher.example", "docs.example:8443", "[::1]:80", "127.0.0.1:8080"]
    assert hosts_of(names) == {
        "docs.python.org",
        "xn--bcher-kva.example",
        "docs.example:8443",
        "[::1]",
        "127.0.0.1:8080",
    }


@pytest.mark.parametrize(
    "name", ["", "http://a.example", "a.example/x", "user@a.example", "*.example", "a b", "a.example?x"]
)
def test_what_is_no_host_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a host"):
        hosts_of([name])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["https://a.example/" + ").," * 200_000, "a" * 500_000, "a." * 250_000])
def test_a_long_message_of_odd_signs_takes_no_quadratic_time(text: str) -> None:
    assert len(written_urls(text)) <= 1
    assert len(paths_in(text)) <= 1
