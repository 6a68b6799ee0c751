"""One section -> an instance of its options, or problems that name its keys as they were written."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from psql_streamer.config.document import Document, KeyPath, fold
from psql_streamer.config.model import ServiceOptions
from psql_streamer.config.problems import Problems
from psql_streamer.nearest import suggest_nearest
from psql_streamer.options import PartOptions

Options = TypeVar("Options", bound=BaseModel)

_QUOTED = 'a name with dots stands in quotes: "{}"'


@dataclass(frozen=True, slots=True)
class Section(Generic[Options]):
    """A table of the configuration.

    data: as it was written, under the options' own names. options: None when there are problems.
    """

    data: Mapping[str, Any]
    options: Options | None

    def list_strings(self, key: str) -> tuple[str, ...]:
        """The strings in a list, default included, whether the rest of the section is right or not."""
        found = self.data.get(key, ()) if self.options is None else getattr(self.options, key, ())
        return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list | tuple) else ()


def validate(
    document: Document,
    problems: Problems,
    options: type[Options],
    path: KeyPath,
    table: Mapping[str, Any],
    also_known: Iterable[str] = (),
    meant: Mapping[str, Any] = MappingProxyType({}),
) -> Section[Options]:
    """The table at `path` as these options; what is wrong with it is added to the problems.

    also_known: names to offer for an unknown key, beside the options' own. meant: what the table means where it does
    not say.
    """
    section = _Table(document, problems, path, options)
    data = {**meant, **section.rename_options(options, table, (), ())}
    section.refuse_booleans(data)
    try:
        try:
            return Section(data, options.model_validate(data))
        except ValidationError as error:
            if not section.take_texts(data, error.errors()):
                raise
        return Section(data, options.model_validate(data))
    except ValidationError as error:
        section.report(data, error.errors(), also_known)
        return Section(data, None)


class _Table:
    """A table of the document under its options' own names. Paths are relative to the section."""

    def __init__(self, document: Document, problems: Problems, path: KeyPath, options: type[BaseModel]) -> None:
        self._document = document
        self._problems = problems
        self._path = path
        self._options = options
        self._written: dict[KeyPath, KeyPath] = {}

    def rename_options(self, annotation: Any, value: Any, path: KeyPath, written: KeyPath) -> Any:
        """The value with every option under the name that its class gives it in TOML."""
        self._written[path] = written
        if isinstance(value, list):
            child = _find_child_type(annotation, 0)
            return [self.rename_options(child, item, (*path, i), (*written, i)) for i, item in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        table: dict[str, Any] = {}
        for key, item in value.items():
            name = self._find_written_name(annotation, key, (*written, key))
            if name in table:
                first = self._written[(*path, name)][-1]
                self._problems.add(
                    self._find_place((*path, name)), f"{key} is another name of {first}: give one of the two"
                )
                continue
            table[name] = self.rename_options(_find_child_type(annotation, name), item, (*path, name), (*written, key))
        return table

    def take_texts(self, data: Any, errors: list[ErrorDetails]) -> bool:
        """Give options that want a string, or a list of them, the text of the variable that set them.

        PSQL_STREAMER__...__TOPIC_PREFIX=2024 is a number in TOML, and ...__HOSTS=a:1,b:2 is no list.
        """
        taken = False
        for error in errors:
            path = self._locate(data, error)
            text = self._document.texts.get(self._find_place(path))
            if text is None:
                continue
            if error["type"] == "string_type":
                _put(data, path, text)
                taken = True
            elif error["type"] in ("tuple_type", "list_type") and isinstance(error["input"], str):
                _put(data, path, [item.strip() for item in text.split(",") if item.strip()])
                taken = True
        return taken

    def report(self, data: Any, errors: list[ErrorDetails], also_known: Iterable[str]) -> None:
        """Word every error, at the place where the key was written."""
        by_path: dict[KeyPath, list[ErrorDetails]] = defaultdict(list)
        for error in errors:
            by_path[self._locate(data, error)].append(error)
        for path, found in by_path.items():
            if found[0]["type"] == "extra_forbidden":
                table = _descend(self._options, path[:-1])
                names = _map_names(table) or _map_names(
                    _find_child_type(table, 0)
                )  # one table may stand for a list of them
                known = [*names.values(), *(also_known if len(path) == 1 else ())]
                key = str(self._find_place(path)[-1])
                place = self._find_place(path if self._find_place(path) in self._document.variables else path[:-1])
                self._problems.add(place, f"unknown key {key}{self._suggest_for_unknown(path, key, known)}")
            elif (name := self._find_unquoted_name(data, path)) is not None:
                self._problems.add(self._find_place(path[:-1]), _QUOTED.format(name))
            else:
                # A validator of a table's keys judges the key, not what it is set to.
                value = path[-1] if found[0]["loc"][-1:] == ("[key]",) else _get(data, path)
                self._problems.add_invalid(self._find_place(path), value, found, ours=_is_ours(self._options))

    def _suggest_for_unknown(self, path: KeyPath, key: str, known: list[str]) -> str:
        """Where the key belongs, how it is to be written, or which one may be meant."""
        inside = len(path) > 1 or self._options is not ServiceOptions
        if inside and key in _map_names(ServiceOptions) and self._find_place(path) not in self._document.variables:
            return "; it belongs to the top of the file, above the first [section]"
        near = suggest_nearest(key, known)
        if near.startswith("; known") and self._is_free_name(path[:-1]):
            return f"; {_QUOTED.format(f'{path[-2]}.{key}')}, if that is what is meant{near}"
        return near

    def _is_free_name(self, path: KeyPath) -> bool:
        """Whether the last key is a name that the user chose: of a table, a column, a property."""
        return len(path) > 1 and isinstance(path[-1], str) and not _map_names(_descend(self._options, path[:-1]))

    def _find_unquoted_name(self, data: Any, path: KeyPath) -> str | None:
        """`sasl.username` where a property of that name was written without quotes: TOML then makes tables of it."""
        value = _get(data, path)
        child = _descend(self._options, path)
        is_table = _find_model(child) or _find_model(_find_child_type(child, 0))  # or one for a list of them
        if not self._is_free_name(path) or not isinstance(value, Mapping) or not value or is_table:
            return None
        name = str(path[-1])
        while isinstance(value, Mapping) and value:
            key, value = next(iter(value.items()))
            name += f".{key}"
        return name

    def refuse_booleans(self, data: Mapping[str, Any]) -> None:
        """pydantic takes true for 1; a person who writes `batchSize = true` means something else."""
        for field, info in self._options.model_fields.items():
            name = info.alias or field
            types_of_field = set(_list_alternatives(info.annotation))
            if isinstance(data.get(name), bool) and types_of_field & {int, float} and bool not in types_of_field:
                self._problems.add(
                    self._find_place((name,)), f"{str(data[name]).lower()} is not allowed: must be a number"
                )

    def _find_written_name(self, annotation: Any, key: str, written: KeyPath) -> str:
        """What the options call a key: camelCase, or snake_case as pydantic has it; variables have neither."""
        names = _map_names(annotation)
        if key in names:
            return names[key]
        if (*self._path, *written) not in self._document.variables:
            return key
        if names:
            return next((name for name in names.values() if fold(name) == fold(key)), key)
        # A free table of options in dotted names (librdkafka's, Spark's): a variable's name cannot hold the dots.
        return key if _find_model(_find_child_type(annotation, key)) else key.replace("_", ".")

    def _locate(self, data: Any, error: ErrorDetails) -> KeyPath:
        """pydantic's location without its own additions, such as the alternatives of a union."""
        path: KeyPath = ()
        for key in error["loc"]:
            if (isinstance(data, dict) and key in data) or (
                isinstance(data, list) and isinstance(key, int) and key < len(data)
            ):
                data = _get(data, (key,))
                path = (*path, key)
        if error["type"] != "missing":
            return path
        if path:
            return (*path, error["loc"][-1])
        # What is required may be in a table that was left out as a whole; pydantic then names the table's field.
        field, *rest = error["loc"]
        return (_map_names(self._options).get(str(field), field), *rest)

    def _find_place(self, path: KeyPath) -> KeyPath:
        """Where it was written, in the document."""
        if path in self._written:
            return (*self._path, *self._written[path])
        return (*self._find_place(path[:-1]), path[-1]) if path else self._path


def _map_names(annotation: Any) -> dict[str, str]:
    """Every name that a table of this type may use for a key -> the key's name in TOML."""
    model = _find_model(annotation)
    if model is None:
        return {}
    aliases = {name: field.alias or name for name, field in model.model_fields.items()}
    return {**{alias: alias for alias in aliases.values()}, **aliases}


def _descend(annotation: Any, path: KeyPath) -> Any:
    for key in path:
        annotation = _find_child_type(annotation, key)
    return annotation


def _find_child_type(annotation: Any, key: str | int) -> Any:
    """The type of what is at `key` in a value of this type; None when nothing is known of it."""
    model = _find_model(annotation)
    if model is not None:
        return next((f.annotation for name, f in model.model_fields.items() if (f.alias or name) == key), None)
    for alternative in _list_alternatives(annotation):
        arguments = get_args(alternative)
        if arguments and get_origin(alternative) is not Annotated:
            return arguments[-1] if isinstance(key, str) else arguments[0]
    return None


def _find_model(annotation: Any) -> type[BaseModel] | None:
    for alternative in _list_alternatives(annotation):
        if isinstance(alternative, type) and issubclass(alternative, BaseModel):
            return alternative
    return None


def _list_alternatives(annotation: Any) -> Iterable[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _list_alternatives(argument)
    elif get_origin(annotation) is Annotated:
        yield from _list_alternatives(get_args(annotation)[0])
    else:
        yield annotation


def _get(data: Any, path: KeyPath) -> Any:
    for key in path:
        data = (data or {}).get(key) if isinstance(data, dict | None) else data[key]
    return data


def _put(data: Any, path: KeyPath, value: Any) -> None:
    _get(data, path[:-1])[path[-1]] = value


def _is_ours(options: type[BaseModel]) -> bool:
    """Whether all validators are this project's, those of the tables inside, which a format may bring, included."""
    inside = (_find_model(field.annotation) for field in options.model_fields.values())
    modules = [model.__module__ for model in (*options.__mro__, *inside) if model and issubclass(model, PartOptions)]
    return all(module.partition(".")[0] in ("psql_streamer", "sources", "sinks") for module in modules)
