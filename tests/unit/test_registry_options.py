"""The block `registry`: what it refuses, and that it shows no secret."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sources.kafka.options import KafkaSourceOptions, SourceRegistryOptions

URL = "https://registry:8081/apis/ccompat/v7"
SECRET = "hunter-of-many-characters"

PROBLEMS = {
    "no url": ({"url": []}, "at least 1 item"),
    "no scheme": ({"url": "registry:8081"}, "is not the URL of a registry"),
    "another scheme": ({"url": "ftp://registry"}, "is not the URL of a registry"),
    "no host": ({"url": "https:///path"}, "is not the URL of a registry"),
    "a port that is none": ({"url": "http://registry:123456"}, "is not the URL of a registry"),
    "a line break": ({"url": "http://registry/\nHost: other"}, "is not the URL of a registry"),
    "a space": ({"url": "http://registry/a b"}, "is not the URL of a registry"),
    "a password in the url": ({"url": f"https://streamer:{SECRET}@registry"}, "set user and password"),
    "a query": ({"url": "https://registry?x=1"}, r"has a \?"),
    "a host with an empty part": ({"url": "https://registry..example"}, "is not the URL of a registry"),
    "a host beyond ASCII": ({"url": "https://régistre"}, "xn--"),
    "a password without a user": ({"password": SECRET}, "password has no user"),
    "a token and a user": ({"token": SECRET, "user": "streamer"}, "exclude each other"),
    "a user with a colon": ({"user": "a:b", "password": SECRET}, "a colon"),
    "a token with a line break": ({"token": f"{SECRET}\n"}, "a line break at its end"),
    "a key without a certificate": ({"key": "k.pem"}, "set certificate"),
    "authorities without TLS": ({"url": "http://registry", "ca": "ca.pem"}, "begins with http:"),
    "another key": ({"auth": "basic"}, "auth"),
    "a timeout of hours": ({"timeout": "2h"}, "longer than 1m"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_cannot_work_is_refused_with_the_reason_and_without_the_secret(name: str) -> None:
    more, expected = PROBLEMS[name]
    with pytest.raises(ValidationError, match=expected) as refused:
        SourceRegistryOptions.model_validate({"url": URL} | more)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("more", [{"user": "streamer", "password": SECRET}, {"token": SECRET}])
def test_neither_a_block_nor_its_section_shows_a_secret(more: dict[str, Any]) -> None:
    section = {"type": "kafka", "hosts": ["k:9092"], "topics": ["t"], "groupID": "g", "registry": {"url": URL} | more}
    options = KafkaSourceOptions.model_validate(section)
    for shown in (options, options.registry, options.model_dump(), options.model_dump_json()):
        assert SECRET not in f"{shown} {shown!r}"


def test_one_url_or_several_and_a_slash_at_the_end_is_nothing() -> None:
    assert SourceRegistryOptions.model_validate({"url": f"{URL}/"}).url == (URL,)
    assert SourceRegistryOptions.model_validate({"url": [URL, "http://other"]}).url == (URL, "http://other")
