"""JUnit XML, which every CI system reads. What goes in is the caller's; what XML cannot hold is made visible."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import NamedTuple

from subluminal.reports.printable import printable

FAILURE, ERROR = "failure", "error"


class Fault(NamedTuple):
    """`kind`: FAILURE, a test that did not hold, or ERROR, one that could not be made."""

    kind: str
    attributes: dict[str, str]
    text: str | None = None


class Case(NamedTuple):
    attributes: dict[str, str]
    fault: Fault | None = None


class Suite(NamedTuple):
    attributes: dict[str, str]
    cases: list[Case]
    properties: dict[str, str]


def count(cases: list[Case], kind: str) -> str:
    return str(sum(case.fault is not None and case.fault.kind == kind for case in cases))


def junit_xml(suites: Iterable[Suite]) -> bytes:
    root = ET.Element("testsuites")
    for suite in suites:
        element = _add(root, "testsuite", suite.attributes)
        if suite.properties:
            properties = _add(element, "properties", {})
            for name, value in suite.properties.items():
                _add(properties, "property", {"name": name, "value": value})
        for case in suite.cases:
            parent = _add(element, "testcase", case.attributes)
            if case.fault is not None:
                _add(parent, case.fault.kind, case.fault.attributes, case.fault.text)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add(parent: ET.Element, tag: str, attributes: dict[str, str], text: str | None = None) -> ET.Element:
    element = ET.SubElement(parent, tag, {name: _text(value) for name, value in attributes.items()})
    element.text = None if text is None else _text(text)
    return element


def _text(text: str) -> str:
    """XML 1.0 has no way at all to write control characters, surrogates and two more, not even escaped."""
    return printable(text, keep="\t\n\r")
