"""The options of Spark's readers, which takes others without a word (Spark documentation, "Data Sources")."""

from __future__ import annotations

from collections.abc import Mapping

_FILES = "pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter ignoreCorruptFiles ignoreMissingFiles"
_TEXTS = (
    "mode columnNameOfCorruptRecord dateFormat timestampFormat timestampNTZFormat enableDateTimeParsingFallback locale "
    "multiLine encoding charset lineSep samplingRatio timeZone singleVariantColumn compression"
)
_CSV = (
    "sep delimiter quote escape comment header inferSchema preferDate enforceSchema ignoreLeadingWhiteSpace "
    "ignoreTrailingWhiteSpace nullValue nanValue positiveInf negativeInf maxColumns maxCharsPerColumn "
    "charToEscapeQuoteEscaping emptyValue unescapedQuoteHandling"
)
_JSON = (
    "primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes "
    "allowNumericLeadingZeros allowBackslashEscapingAnyCharacter allowUnquotedControlChars allowNonNumericNumbers "
    "dropFieldIfAllNull"
)
_PARQUET = "mergeSchema datetimeRebaseMode int96RebaseMode"

KNOWN: Mapping[str, Mapping[str, str]] = {
    kind: {name.lower(): name for name in " ".join(names).split()}
    for kind, names in {
        "csv": (_FILES, _TEXTS, _CSV),
        "json": (_FILES, _TEXTS, _JSON),
        "parquet": (_FILES, _PARQUET),
    }.items()
}
"""Kind -> the options that it has, by their names in lower case. A JDBC driver has options of its own."""
