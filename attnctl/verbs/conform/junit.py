"""A conformance as JUnit XML, as continuous integration reads it: a case for each feature and type."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from attnctl.verbs.conform.report import SKIPPED, XFAIL, Conformance


def junit(found: Conformance) -> str:
    """The text of the file; what is known to fail is skipped with why."""
    skipped = sum(each.status in {SKIPPED, XFAIL} for each in found.features)
    suite = Element("testsuite", name=f"attnctl conform {found.target}", errors="0")
    suite.attrib |= {
        "tests": str(len(found.features)),
        "failures": str(len(found.wrong)),
        "skipped": str(skipped),
    }
    for each in found.features:
        case = SubElement(suite, "testcase", classname=f"{found.target}.{each.dtype}", name=each.feature)
        if each.status in {SKIPPED, XFAIL}:
            SubElement(case, "skipped", message=legal(each.known or each.reason))
        elif each.failure:
            failure = each.failure
            said = failure.explanation or failure.words
            node = SubElement(case, "failure", type=failure.mistake or each.status, message=legal(said))
            node.text = legal(f"{failure.words}\nin {failure.case}\n{failure.replay}".strip())
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def legal(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(each if each in "\n\t" or each.isprintable() else "?" for each in text)
