"""Checks of HTML reports."""

from html.parser import HTMLParser


def assert_well_formed(page: str) -> None:
    """Every tag is closed in its order, and nothing is loaded or run."""
    open_tags: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "br"):
                open_tags.append(tag)

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Checker().feed(page)
    assert open_tags == []
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "nan" not in page
