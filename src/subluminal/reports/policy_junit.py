"""Test results as JUnit XML, which every CI system reads."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from subluminal.policy.replay.testing import FileResult

# XML 1.0 has no way at all to write these, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(files: list[FileResult]) -> bytes:
    root = ET.Element("testsuites")
    for file in files:
        failed = sum(1 for result in file.results if result.failure)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_text(file.path),
            tests=str(len(file.results)),
            failures=str(failed),
            time=f"{sum(result.seconds for result in file.results):.6f}",
        )
        for result in file.results:
            name, seconds = _text(result.name), f"{result.seconds:.6f}"
            case = ET.SubElement(suite, "testcase", name=name, classname=_text(file.policy), time=seconds)
            if result.failure:
                failure = ET.SubElement(case, "failure", message=_text(result.failure.text()))
                failure.text = _text(result.failure.summary)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _text(text: str) -> str:
    return _NOT_XML.sub("�", text)
