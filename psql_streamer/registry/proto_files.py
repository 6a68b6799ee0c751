"""The .proto files of a schema as descriptors.

Confluent's registry gives descriptors, in base64. Others give the text alone, which protoc reads.
"""

from __future__ import annotations

import base64
import binascii
import errno
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from psql_streamer.registry.errors import RegistryRefused, RegistryUnavailable, SchemaError

_MAIN = "schema-of-the-record.proto"
_PROTOC_SECONDS = 60

_META = """
syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
"""Confluent's remarks on schemas. Records do not have them."""

_MESSAGES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "confluent/type/decimal.proto": (
        "confluent.type",
        "Decimal",
        {"value": "bytes", "precision": "uint32", "scale": "int32"},
    ),
    "google/type/date.proto": ("google.type", "Date", {"year": "int32", "month": "int32", "day": "int32"}),
    "google/type/timeofday.proto": (
        "google.type",
        "TimeOfDay",
        {"hours": "int32", "minutes": "int32", "seconds": "int32", "nanos": "int32"},
    ),
}
"""Files that registries have without being asked: the package, the message, and its fields in their order from 1 on."""

_KINDS = {
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
}


def read_proto_files(text: str, references: Mapping[str, str]) -> list[FileDescriptorProto]:
    """The files, each behind those that it imports; the last one is the schema's. Raises SchemaError, and
    RegistryRefused if there is no protoc.
    """
    main = _decode_base64(text, _MAIN)
    if main is None:
        return _compile(text, references)
    files = [_decode_base64(one, name) for name, one in references.items()]
    given = [one for one in files if one is not None]
    if len(given) < len(files):
        raise SchemaError("the registry gives some of its files as descriptors, and others as text")
    found: dict[str, FileDescriptorProto] = {}
    for file in (*given, main):
        for name in file.dependency:
            _add_known(found, name)
        found[file.name] = file
    return list(found.values())


def _decode_base64(text: str, name: str) -> FileDescriptorProto | None:
    """None for text of another form. name: by which other files import it."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.name = name
    return file


def _add_known(found: dict[str, FileDescriptorProto], name: str) -> None:
    """A file that everybody has, with those that it imports in front of it."""
    if name in found:
        return
    if name in _MESSAGES:
        found[name] = _make_known_file(name)
    elif name == "confluent/meta.proto":
        found[name] = FileDescriptorProto(name=name, package="confluent", syntax="proto3")
    elif name.startswith("google/protobuf/"):
        try:
            module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            raise SchemaError(f"it imports a file that is not among its references: {name}") from None
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for other in file.dependency:
            _add_known(found, other)
        found[name] = file


def _make_known_file(name: str) -> FileDescriptorProto:
    package, message, fields = _MESSAGES[name]
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    described = file.message_type.add(name=message)
    for number, (field, kind) in enumerate(fields.items(), 1):
        described.field.add(
            name=field, json_name=field, number=number, type=_KINDS[kind], label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    return file


def _compile(text: str, references: Mapping[str, str]) -> list[FileDescriptorProto]:
    if find_spec("grpc_tools") is None:
        raise RegistryRefused(
            "the registry gives a schema of Protobuf as text, and there is no protoc that reads it",
            "pip install grpcio-tools beside psql-streamer (the extra registry)",
        )
    with tempfile.TemporaryDirectory(prefix="psql-streamer-protoc") as folder:
        for name, content in {**_render_known_texts(), **references, _MAIN: text}.items():
            _write(Path(folder, _require_inside(name)), content)
        out = Path(folder, "descriptors")
        command = [
            *(sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"),
            *(f"--descriptor_set_out={out}", _MAIN),
        ]
        try:
            run = subprocess.run(  # noqa: S603 - a module of a package that was just looked up
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder, timeout=_PROTOC_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise SchemaError(f"protoc has not read it within {_PROTOC_SECONDS} s") from None
        if run.returncode < 0:
            raise RegistryUnavailable(f"protoc was ended by signal {-run.returncode}", "look at the free memory")
        if run.returncode or not out.exists():
            said = run.stderr.strip().splitlines()
            raise SchemaError(f"protoc does not read it ({said[0] if said else run.returncode})")
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def _write(path: Path, content: str) -> None:
    """A file of the schema. RegistryUnavailable if the disk does not take it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    except UnicodeEncodeError:
        raise SchemaError("the text or the name of one of its files is not Unicode") from None
    except OSError as error:
        if error.errno in _OF_NAMES:
            raise SchemaError("it refers to a file by a name that is none") from None
        raise RegistryUnavailable(f"files for protoc cannot be written: {error.strerror}", "look at TMPDIR") from None


_OF_NAMES = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


def _render_known_texts() -> Mapping[str, str]:
    found = {"confluent/meta.proto": _META}
    for name, (package, message, fields) in _MESSAGES.items():
        lines = "".join(f"{kind} {field} = {number}; " for number, (field, kind) in enumerate(fields.items(), 1))
        found[name] = f'syntax = "proto3"; package {package}; message {message} {{ {lines}}}'
    return found


def _require_inside(name: str) -> PurePosixPath:
    """The name of a file below a folder. A registry may give any."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise SchemaError("it refers to a file by a name that is none")
    return path
