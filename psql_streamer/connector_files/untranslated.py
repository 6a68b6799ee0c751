"""Options of Debezium's connectors that have no key of their own here, and why."""

from __future__ import annotations

import re

NOT_NEEDED = "not needed here"
_BY_A_RULE = "a rule in [spark.tables] does that"
_BY_THE_PUBLICATION = "the publication decides that"
_DEFAULT_MODES = "values have the types of the default modes; coerce in [spark.tables] makes others"
_OTHERS = "has nothing in its place"

_REASONS: dict[str, str] = {
    r"connect\..*": NOT_NEEDED,
    r"database\.(?:history|server\.id)\b.*": NOT_NEEDED,
    r"errors\.(?:log|max\.retries|retry)\b.*": NOT_NEEDED,
    r"gtid\.source\..*": NOT_NEEDED,
    r"heartbeat\..*": NOT_NEEDED,
    r"include\.(?:schema\.changes|unknown\.datatypes)": NOT_NEEDED,
    r"incremental\.snapshot\.watermarking\.strategy": NOT_NEEDED,
    r"(?:key|value|header)\.converter\b.*": NOT_NEEDED,
    r"max\.(?:batch|queue)\.size.*": NOT_NEEDED,
    r"name|tasks\.max|read\.only": NOT_NEEDED,
    r"(?:notification|offset|retriable|schema\.history|signal)\..*": NOT_NEEDED,
    r"(?:poll|status\.update|xmin\.fetch)\.interval\.ms": NOT_NEEDED,
    r"publication\.autocreate\.mode|slot\.stream\.params": NOT_NEEDED,
    r"snapshot\.(?:delay\.ms|fetch\.size|isolation\.mode|locking\.mode)": NOT_NEEDED,
    r"slot\.drop\.on\.stop": "a slot that is dropped loses changes",
    r"tombstones\.on\.delete": "records without a value follow deletes; the formats event and envelope have none",
    r"(?:column\.mask|column\.truncate|predicates|transforms)\b.*": _BY_A_RULE,
    r"(?:decimal|interval|hstore|binary|bigint\.unsigned|geometry|vector)\.handling\.mode": _DEFAULT_MODES,
    r"time\.precision\.mode": _DEFAULT_MODES,
    r"skipped\.operations|schema\.(?:include|exclude)\.list|column\.include\.list|publish\..*": _BY_THE_PUBLICATION,
    r"errors\.(?:tolerance|deadletterqueue\..*)|event\.processing\.failure\.handling\.mode": "see deadLetterTopic",
    r"(?:snapshot\.(?:select|include|max)|incremental\.snapshot)\b.*": "see [source.NAME.snapshot]",
    r"topic\.naming\.strategy": "see tableTopicMapping",
    r"topic\.creation\..*": "see [sink.NAME.createTopics], which holds for all topics",
    r"producer\.override\..*": "librdkafka may call it otherwise: see [sink.NAME.kafka]",
    r"(?:field|schema)\.name\.adjustment\.mode": "names are adjusted in Avro, as with avro, and not in JSON",
}
"""Options as regular expressions; the first that fits counts."""


def explain_option(option: str) -> str:
    """Why an option is not in the translation."""
    return next((reason for pattern, reason in _REASONS.items() if re.fullmatch(pattern, option)), _OTHERS)
