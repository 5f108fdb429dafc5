"""The accessibility rules of axe-core, applied to a page as a browser shows it."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page

from tests.servers.node_packages import node_with

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def violations(page: Page) -> list[str]:
    """What breaks a rule on this page: the rule, and where. The page keeps its content security policy."""
    _, packages = node_with("axe")
    source = (packages / "node_modules" / "axe-core" / "axe.min.js").read_text()
    await page.evaluate(f"{source}\n;undefined")  # by the debugger, which no policy forbids
    found: dict[str, Any] = await page.evaluate(
        "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", _RULES
    )
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
