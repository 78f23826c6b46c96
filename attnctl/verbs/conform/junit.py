"""A conformance as JUnit XML, as continuous integration reads it: a case for each feature and type."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from attnctl.verbs.conform.report import FAILED, IGNORED, SKIPPED, Conformance, FeatureResult


def junit(found: Conformance) -> str:
    """The text of the file; what is known to fail is skipped with why."""
    wrong = sum(counts(each) for each in found.features)
    skipped = sum(each.status == SKIPPED or bool(each.known) for each in found.features)
    suite = Element("testsuite", name=f"attnctl conform {found.target}", errors="0")
    suite.attrib |= {"tests": str(len(found.features)), "failures": str(wrong), "skipped": str(skipped)}
    for each in found.features:
        case = SubElement(suite, "testcase", classname=f"{found.target}.{each.dtype}", name=each.feature)
        if each.status == SKIPPED or each.known:
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


def counts(result: FeatureResult) -> bool:
    """Whether it counts as a failure."""
    return result.status in {FAILED, IGNORED} and not result.known


def legal(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(each if each in "\n\t" or each.isprintable() else "?" for each in text)
