"""Checks every relative link, image and anchor of the HTML pages below a directory."""

import os
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

# Made by mdBook for every book: the page for wrong addresses, all pages in one, and the list of chapters.
LEFT_OUT = ("404.html", "print.html", "toc.html")


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.targets, self.anchors = [], set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        self.targets += [given[name] for name in ("href", "src") if given.get(name)]


def problem(path, target, pages):
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    file = path
    if parts.path:
        file = os.path.normpath(os.path.join(os.path.dirname(path), unquote(parts.path)))
    if not os.path.exists(file):
        return "there is no such file"
    if parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
        return "the page has no such anchor"
    return None


def main(folder):
    files = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    pages = {file: Page(file) for file in files if file.endswith(".html")}
    links = [
        (path, target)
        for path, page in pages.items()
        if not path.endswith(LEFT_OUT)
        for target in page.targets
    ]
    broken = [(*link, what) for link in links if (what := problem(*link, pages))]
    for path, target, what in broken:
        print(f"{os.path.relpath(path, folder)}: {target}: {what}", file=sys.stderr)
    print(f"{len(pages)} pages, {len(links)} links, {len(broken)} broken")
    return 1 if broken or not links else 0


sys.exit(main(sys.argv[1]))
